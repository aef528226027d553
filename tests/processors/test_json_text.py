import tracemalloc
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from processors.json_text import dump, dump_text, to_keep
from tests.processors.strategies import BREAKS, NASTY_TEXTS
from tests.sse import strict_json

TEXTS = NASTY_TEXTS | st.text()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(TEXTS)
def test_law_6_any_text_is_one_line_and_reads_back(text: str) -> None:
    literal = dump_text(text)
    assert literal.decode().splitlines() == [literal.decode()]
    assert strict_json(literal) == text


@given(VALUES)
def test_law_6_any_value_is_one_line_and_reads_back(value: object) -> None:
    literal = dump(value)
    assert literal.decode().splitlines() == [literal.decode()]
    assert strict_json(literal) == value


def test_law_6_every_break_is_escaped() -> None:
    literal = dump_text(BREAKS)
    assert literal.isascii()
    assert strict_json(literal) == BREAKS


def test_other_text_stays_as_it_is() -> None:
    assert dump_text("é🌟\u2027\u202a\u0084") == '"é🌟\u2027\u202a\u0084"'.encode()


def size_of(make: Callable[[int], bytes]) -> int:
    """Bytes that a thousand results hold."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [make(number) for number in range(1000)]
        after, _ = tracemalloc.get_traced_memory()
        assert len(kept) == 1000
        return after - before
    finally:
        tracemalloc.stop()


def test_what_is_kept_takes_no_more_memory_than_it_is_long() -> None:
    assert size_of(lambda number: to_keep(dump_text(f"token {number}"))) < 150_000
    assert to_keep(b'"x"') == b'"x"'


def test_what_is_kept_takes_no_more_than_its_length() -> None:
    tracemalloc.start()
    try:
        kept = [to_keep(dump_text(f"token {number}")) for number in range(1000)]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept[7] == b'"token 7"'
    assert size < 200 * len(kept)
