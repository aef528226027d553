from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from processors.stops import StopMatch, StopMatcher
from tests.processors.strategies import cut_texts

ALPHABET = "abé🌟"
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), min_size=1, max_size=4)
TEXTS = st.text(ALPHABET, max_size=20)


class Reading(msgspec.Struct, frozen=True):
    """All that came out: the text, the stop that ended it, the characters read up to its end (None: all)."""

    text: str
    stop: str | None = None
    read: int | None = None


def read(pieces: Sequence[str], stops: Sequence[str], *, include_stop: bool = False, armed_from: int = 0) -> Reading:
    """Feed the pieces; the first `armed_from` of them are passed over."""
    matcher = StopMatcher(stops, include_stop=include_stop)
    out = ""
    before = 0
    for number, piece in enumerate(pieces):
        released = matcher.feed(piece, armed=number >= armed_from)
        if isinstance(released, StopMatch):
            return Reading(out + released.text, released.stop, before + released.end)
        out += released
        before += len(piece)
    return Reading(out + matcher.flush())


def search(text: str, stops: Sequence[str], *, include_stop: bool = False, completed_after: int = 0) -> Reading:
    """The rule spelt out: the first end at which any stop string is complete; there the longest."""
    for end in range(completed_after + 1, len(text) + 1):
        if complete := [stop for stop in stops if text[:end].endswith(stop)]:
            stop = max(complete, key=len)
            return Reading(text[:end] if include_stop else text[: end - len(stop)], stop, end)
    return Reading(text)


@given(TEXTS, STOPS, st.booleans(), st.data())
@example(text="abab", stops=["bab", "ab"], include_stop=False, data=None)
@example(text="aab", stops=["ab", "aab", "b"], include_stop=False, data=None)
def test_law_1_the_earliest_completion_wins_and_there_the_longest(
    text: str, stops: list[str], include_stop: bool, data: st.DataObject | None
) -> None:
    pieces = list(text) if data is None else data.draw(cut_texts(text))
    assert read(pieces, stops, include_stop=include_stop) == search(text, stops, include_stop=include_stop)


@given(TEXTS, STOPS, st.data())
def test_only_a_proper_prefix_of_a_stop_string_is_held(text: str, stops: list[str], data: st.DataObject) -> None:
    matcher = StopMatcher(stops)
    seen = out = ""
    for piece in data.draw(cut_texts(text)):
        released = matcher.feed(piece)
        if isinstance(released, StopMatch):
            return
        seen, out = seen + piece, out + released
        held = seen[len(out) :]
        longest = max(size for stop in stops for size in range(len(stop)) if seen.endswith(stop[:size]))
        assert seen == out + held
        assert len(held) == longest


@given(TEXTS, STOPS, st.data())
def test_min_tokens_passes_over_what_completes_before(text: str, stops: list[str], data: st.DataObject) -> None:
    pieces = data.draw(cut_texts(text))
    armed_from = data.draw(st.integers(0, len(pieces)))
    expected = search(text, stops, completed_after=len("".join(pieces[:armed_from])))
    assert read(pieces, stops, armed_from=armed_from) == expected


@given(TEXTS, STOPS)
def test_end_says_how_much_of_the_piece_belongs_to_the_answer(text: str, stops: list[str]) -> None:
    released = StopMatcher(stops).feed(text)
    if isinstance(released, StopMatch):
        assert text[: released.end].endswith(released.stop)
        assert released.text + released.stop == text[: released.end]


def test_a_stop_string_over_token_borders_never_shows_its_beginning() -> None:
    """`</s` over `</` and `s`."""
    matcher = StopMatcher(["</s"])
    assert matcher.feed("a</") == "a"
    assert matcher.feed("s") == StopMatch("", "</s", 1)


def test_a_failed_partial_match_is_released_whole() -> None:
    matcher = StopMatcher(["ta gam", "\n\n\nQ"])
    assert matcher.feed("beta ga") == "be"
    assert matcher.feed("z\n\n\n") == "ta gaz"
    assert matcher.feed("\n") == "\n"
    assert matcher.feed("\nR") == "\n\n\n\nR"
    assert matcher.flush() == ""


def test_a_stop_string_overlaps_itself() -> None:
    assert read("aaab", ["aab"]) == Reading("a", "aab", 4)
    assert read("ababac", ["abac"]) == Reading("ab", "abac", 6)


def test_a_stop_string_may_overlap_one_that_min_tokens_passed_over() -> None:
    assert read(["aa", "a"], ["aa"], armed_from=1) == Reading("a", "aa", 3)


def test_include_stop_keeps_the_stop_string_and_nothing_after_it() -> None:
    assert read(["one tw", "o three"], ["two"], include_stop=True) == Reading("one two", "two", 7)


def test_flush_gives_back_what_was_held() -> None:
    matcher = StopMatcher(["STOP"])
    assert matcher.feed("go ST") == "go "
    assert matcher.flush() == "ST"
    assert matcher.feed("OP") == "OP"


def test_the_same_stop_string_twice_is_one() -> None:
    assert read("xab", ["ab", "ab"]) == Reading("x", "ab", 3)


@pytest.mark.parametrize("stop", ["é", "e\u0301", "🌟", "\u200d👩", "\u2028"])
def test_stop_strings_are_compared_by_code_points(stop: str) -> None:
    assert read(f"abc{stop}d", [stop]) == Reading("abc", stop, 3 + len(stop))


def test_a_long_stop_string_that_nearly_matches_costs_constant_work() -> None:
    """What is held stays below the stop string's length, whatever comes."""
    matcher = StopMatcher(["a" * 500 + "b"])
    out = [matcher.feed("a") for _ in range(5000)]
    assert out == [""] * 500 + ["a"] * 4500
    assert matcher.feed("b") == StopMatch("", "a" * 500 + "b", 1)
