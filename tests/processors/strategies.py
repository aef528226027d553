"""What the property tests of this floor draw from: ids, texts, and ways to cut a sequence into runs."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

Item = TypeVar("Item")

FINITE = st.floats(allow_nan=False, allow_infinity=False, max_value=0.0)
LOGPROBS = st.one_of(FINITE, st.just(float("-inf")), st.floats(min_value=-20.0, max_value=0.0, width=32))
BREAKS = "\u0085\u2028\u2029\x0b\x0c\x1c\x1d\x1e\r\n"
NASTY_TEXTS = st.text(st.sampled_from('ab"\\/<é漢🌟\u200d\u0301\ufffd\x00\x7f' + BREAKS), max_size=12)


@st.composite
def cuts(draw: st.DrawFn, items: Sequence[Item], *, empty_runs: bool = True) -> list[list[Item]]:
    """A sequence cut into consecutive runs, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(items)), max_size=6)))
    if not empty_runs:
        places = sorted(set(places) - {0, len(items)})
    return [list(items[start:end]) for start, end in zip([0, *places], [*places, len(items)], strict=True)]


@st.composite
def cut_texts(draw: st.DrawFn, text: str) -> list[str]:
    """A text cut into consecutive pieces, some of them empty."""
    return ["".join(run) for run in draw(cuts(text))]
