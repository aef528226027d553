import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sse import BrokenStream, Event, EventReader, event_of, strict_json


def read(pieces: list[bytes]) -> list[Event]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    reader.close()
    return events


@given(st.lists(st.integers(1, 30), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    body = 'data: {"text":"é🙂"}\n\n: ping\n\ndata: {}\n\ndata: [DONE]\n\n'.encode()
    pieces, rest = [], body
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    events = read([*pieces, rest])
    assert events == read([body])
    assert events[0].json == {"text": "é🙂"}
    assert events[1] == Event(comment="ping")
    assert events[-1].done


@pytest.mark.parametrize(
    "body",
    [
        b"data: {}\n\n",
        b"data: {}\n\ndata: [DONE]\n\ndata: {}\n\n",
        b"data: {}\n\ndata: [DONE]\n\n: ping\n\n",
        b"data: [DONE]\n\ndata:",
        b"data: {}\ndata: {}\n\ndata: [DONE]\n\n",
        b"data: {}\r\n\r\ndata: [DONE]\r\n\r\n",
        b"event: x\n\ndata: [DONE]\n\n",
        b"retry: 3\n\ndata: [DONE]\n\n",
        "data: \u2028\n\ndata: [DONE]\n\n".encode(),
        "data: \u0085\n\ndata: [DONE]\n\n".encode(),
        b"",
    ],
)
def test_what_some_client_would_choke_on_is_refused(body: bytes) -> None:
    with pytest.raises(BrokenStream):
        read([body])


@pytest.mark.parametrize("literal", [b"NaN", b"[Infinity]", b"-Infinity", b'{"a":1,"a":2}'])
def test_loose_json_is_refused(literal: bytes) -> None:
    with pytest.raises(BrokenStream):
        strict_json(literal)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        strict_json(rb'"\ud83d"')


def test_a_comment_has_no_json() -> None:
    with pytest.raises(BrokenStream):
        _ = event_of(b": ping").json
