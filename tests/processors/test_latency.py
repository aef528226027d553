from processors.latency import Latency
from tests.processors.recording_meter import RecordingMeter


def test_the_first_frame_tells_of_the_first_token_and_of_gaps_of_nothing() -> None:
    meter = RecordingMeter()
    Latency(meter, 10.0).mark(10.5, 1.0, 3)
    assert meter.first_tokens == [0.5]
    assert meter.gaps == meter.engine_gaps == [(0.0, 2)]


def test_later_frames_tell_of_gaps_by_each_clock() -> None:
    meter = RecordingMeter()
    latency = Latency(meter, 10.0)
    latency.mark(10.5, 1.0, 1)
    latency.mark(11.5, 1.25, 4)
    latency.mark(11.75, 1.5, 1)
    assert meter.first_tokens == [0.5]
    assert meter.gaps == [(1.0, 4), (0.25, 1)]
    assert meter.engine_gaps == [(0.25, 4), (0.25, 1)]
    assert latency.time_to_first_token() == 0.5
    assert latency.time_per_output_token(6) == 1.25 / 5


def test_times_are_none_where_nothing_was_seen() -> None:
    latency = Latency(RecordingMeter(), 10.0)
    assert latency.time_to_first_token() is None
    assert latency.time_per_output_token(0) is None
    latency.mark(11.0, 1.0, 1)
    assert latency.time_per_output_token(1) is None
