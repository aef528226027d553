import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import EngineDied, EngineFault, TailraceError
from processors.collector import Collector
from processors.delta import Delta
from tests.processors.answers import Answer, answers, deltas_of, joined
from tests.processors.recording_meter import RecordingMeter
from tests.processors.strategies import cuts

ANSWERS = answers(vocabulary=50)
GUARD = 5.0


class RecordingSink:
    """Takes deltas while not busy; remembers deltas and errors in order."""

    def __init__(self) -> None:
        self.busy = False
        self.taken: list[Delta] = []
        self.errors: list[TailraceError] = []

    def deliver(self, delta: Delta) -> bool:
        if self.busy:
            return False
        assert not self.errors
        assert not delta.later_texts
        self.taken.append(delta)
        return True

    def fail(self, error: TailraceError) -> None:
        self.errors.append(error)


def tokens(*ids: int, end: bool = False) -> Delta:
    answer = Answer(tokens=[])
    delta = deltas_of(answer, [[], []])[1 if end else 0]
    delta.token_ids, delta.lengths, delta.text = list(ids), [1] * len(ids), "x" * len(ids)
    return delta


@given(ANSWERS, st.data())
def test_law_1_any_interleaving_of_puts_and_a_busy_sink(answer: Answer, data: st.DataObject) -> None:
    runs = data.draw(cuts(answer.tokens))
    meter = RecordingMeter()
    collector, sink = Collector(meter), RecordingSink()
    attach_before = data.draw(st.integers(0, len(runs)))
    for number, delta in enumerate(deltas_of(answer, runs)):
        if number == attach_before:
            collector.attach(sink)
        sink.busy = data.draw(st.booleans())
        if number >= attach_before and data.draw(st.booleans()):
            collector.resume()
        collector.put(delta)
    sink.busy = False
    collector.attach(sink)
    assert joined(sink.taken) == joined(deltas_of(answer, runs))
    assert meter.merges == len(runs) - len(sink.taken)
    assert collector.ended


@given(ANSWERS, st.data())
def test_law_1_any_interleaving_of_puts_and_a_waiting_reader(answer: Answer, data: st.DataObject) -> None:
    runs = data.draw(cuts(answer.tokens))
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=len(runs), max_size=len(runs)))

    async def scene() -> list[Delta]:
        collector = Collector()
        taken: list[Delta] = []

        async def reader() -> None:
            while not taken or taken[-1].finish is None:
                taken.append(await collector.get())

        async with asyncio.timeout(GUARD), asyncio.TaskGroup() as group:
            group.create_task(reader())
            for delta, gap in zip(deltas_of(answer, runs), gaps, strict=True):
                for _ in range(gap):
                    await asyncio.sleep(0)
                collector.put(delta)
        return taken

    assert joined(asyncio.run(scene())) == joined(deltas_of(answer, runs))


@given(ANSWERS, st.data())
def test_law_2_the_whole_answer_is_the_deltas_joined(answer: Answer, data: st.DataObject) -> None:
    runs = data.draw(cuts(answer.tokens))

    async def scene() -> Delta:
        collector = Collector()
        for delta in deltas_of(answer, runs):
            collector.put(delta)
        return await collector.whole()

    assert joined([asyncio.run(scene())]) == joined(deltas_of(answer, runs))


def test_rows_in_are_rows_out() -> None:
    """S13: [5], then [5, 5] is three tokens."""
    collector, sink = Collector(), RecordingSink()
    sink.busy = True
    collector.attach(sink)
    collector.put(tokens(5))
    collector.put(tokens(5, 5))
    sink.busy = False
    collector.resume()
    assert [delta.token_ids for delta in sink.taken] == [[5, 5, 5]]


def test_a_free_sink_gets_each_delta_at_once() -> None:
    collector, sink = Collector(), RecordingSink()
    collector.attach(sink)
    for token_id in range(3):
        collector.put(tokens(token_id))
        assert sink.taken[-1].token_ids == [token_id]


def test_what_is_pending_stays_before_what_comes() -> None:
    """A sink that is free again but has not resumed gets nothing out of turn."""
    collector, sink = Collector(), RecordingSink()
    collector.attach(sink)
    sink.busy = True
    collector.put(tokens(1))
    sink.busy = False
    collector.put(tokens(2))
    collector.resume()
    assert [delta.token_ids for delta in sink.taken] == [[1, 2]]


def test_resume_without_anything_kept_delivers_nothing() -> None:
    collector, sink = Collector(), RecordingSink()
    collector.attach(sink)
    collector.put(tokens(1))
    collector.resume()
    collector.resume()
    assert len(sink.taken) == 1


def test_law_7_an_error_comes_after_what_was_pending_and_once() -> None:
    collector, sink = Collector(), RecordingSink()
    sink.busy = True
    collector.attach(sink)
    collector.put(tokens(1))
    error = EngineDied("gone")
    collector.fail(error)
    collector.fail(EngineFault("later"))
    assert sink.errors == []
    sink.busy = False
    collector.resume()
    collector.resume()
    assert [delta.token_ids for delta in sink.taken] == [[1]]
    assert sink.errors == [error]


def test_law_7_an_error_without_anything_pending_comes_at_once() -> None:
    collector, sink = Collector(), RecordingSink()
    collector.attach(sink)
    error = EngineDied("gone")
    collector.fail(error)
    assert sink.errors == [error]


def test_law_7_a_sink_that_comes_late_hears_of_the_error() -> None:
    collector, sink = Collector(), RecordingSink()
    collector.put(tokens(1))
    collector.fail(EngineDied("gone"))
    collector.attach(sink)
    assert len(sink.taken) == len(sink.errors) == 1


def test_law_7_nothing_comes_in_after_the_finish_or_an_error() -> None:
    collector, sink = Collector(), RecordingSink()
    collector.attach(sink)
    collector.put(tokens(1, end=True))
    collector.put(tokens(2))
    collector.fail(EngineFault("late"))
    assert [delta.token_ids for delta in sink.taken] == [[1]]
    assert sink.errors == []


class BrokenSink(RecordingSink):
    """Breaks on every delta."""

    def deliver(self, delta: Delta) -> bool:
        raise RuntimeError("rendering broke")


def test_law_7_a_sink_that_breaks_on_the_last_delta_can_still_be_told() -> None:
    collector, sink = Collector(), BrokenSink()
    collector.attach(sink)
    with pytest.raises(RuntimeError):
        collector.put(tokens(1, end=True))
    error = EngineFault("broke")
    collector.fail(error)
    assert sink.errors == [error]


async def test_get_takes_what_came_before_the_error_and_then_raises_it() -> None:
    collector = Collector()
    collector.put(tokens(1))
    collector.fail(EngineDied("gone"))
    assert (await collector.get()).token_ids == [1]
    for _ in range(2):
        with pytest.raises(EngineDied):
            await collector.get()
    with pytest.raises(EngineDied):
        await collector.ready()


async def test_a_waiting_reader_hears_of_an_error() -> None:
    collector = Collector()
    async with asyncio.timeout(GUARD):
        reader = asyncio.create_task(collector.get())
        await asyncio.sleep(0)
        collector.fail(EngineDied("gone"))
        with pytest.raises(EngineDied):
            await reader


async def test_ready_takes_nothing_away() -> None:
    collector = Collector()
    collector.put(tokens(1))
    await collector.ready()
    assert (await collector.get()).token_ids == [1]


async def test_a_reader_that_gives_up_loses_nothing() -> None:
    collector = Collector()
    reader = asyncio.create_task(collector.get())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    collector.put(tokens(1))
    assert (await collector.get()).token_ids == [1]


class CountingCollector(Collector):
    """Counts how often its reader went to sleep."""

    waits = 0

    async def _change(self) -> None:
        self.waits += 1
        await super()._change()


async def test_whole_wakes_once_at_the_end() -> None:
    collector = CountingCollector()
    reader = asyncio.create_task(collector.whole())
    for token_id in range(5):
        await asyncio.sleep(0)
        collector.put(tokens(token_id))
    await asyncio.sleep(0)
    collector.put(tokens(5, end=True))
    async with asyncio.timeout(GUARD):
        assert (await reader).token_ids == [0, 1, 2, 3, 4, 5]
    assert collector.waits == 1


async def test_whole_gives_no_partial_answer() -> None:
    collector = Collector()
    collector.put(tokens(1))
    collector.fail(EngineDied("gone"))
    with pytest.raises(EngineDied):
        await collector.whole()


async def test_whole_after_the_end_returns_at_once() -> None:
    collector = Collector()
    collector.put(tokens(1, end=True))
    assert (await collector.whole()).token_ids == [1]
