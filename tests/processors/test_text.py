from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import Finish, FinishKind
from processors.detokenizer import TableDetokenizer
from processors.text import TextParams, TextPiece, TextStream
from processors.vocabulary import Vocabulary
from tests.processors import toy_tokenizers
from tests.processors.strategies import cut_texts, cuts
from tests.processors.toy_tokenizers import id_of, ids_of

TOKENIZER = toy_tokenizers.byte_level()
VOCABULARY = Vocabulary(TOKENIZER)
END = id_of(TOKENIZER, "<|im_end|>")
PLAIN = TextParams()
EOS = Finish(FinishKind.STOP)
LENGTH = Finish(FinishKind.LENGTH)
# Letters and the bytes of two characters, whole or not, with a special token among them.
IDS = st.lists(st.sampled_from([*b"ab", *"é".encode(), *"🌟".encode(), END]), min_size=1, max_size=12)
STOPS = st.lists(st.text("abé🌟\ufffd", min_size=1, max_size=3), max_size=3).map(tuple)
FINISHES = st.sampled_from([EOS, Finish(FinishKind.STOP, matched=97), LENGTH, Finish(FinishKind.ABORT)])
PARAMS = st.builds(
    TextParams,
    stop=STOPS,
    include_stop=st.booleans(),
    skip_special_tokens=st.booleans(),
    min_tokens=st.integers(0, 4),
)


def stream(params: TextParams = PLAIN) -> TextStream:
    hidden = VOCABULARY.special if params.skip_special_tokens else frozenset[int]()
    return TextStream(TableDetokenizer(VOCABULARY, hidden=hidden), params)


class Reading(msgspec.Struct):
    """A sequence's whole text and its tokens' lengths."""

    text: str = ""
    lengths: list[int] = []
    stop: str | None = None

    def append(self, piece: TextPiece) -> None:
        """Take the next piece."""
        assert piece.kept == len(piece.lengths)
        self.text += piece.text
        self.lengths += piece.lengths
        self.stop = piece.stop


def read(rows: Sequence[Sequence[int]], params: TextParams, finish: Finish) -> Reading:
    """Feed rows, the last one with the finish, up to a stop string."""
    texts, reading = stream(params), Reading()
    for number, row in enumerate(rows, start=1):
        reading.append(texts.feed(row, finish if number == len(rows) else None))
        if reading.stop is not None:
            break
    return reading


def visible_texts(ids: Sequence[int], params: TextParams, finish: Finish) -> list[str]:
    """The text that each token completes, uncut: a stop token has none, an unfinished end is the last one's."""
    hidden = VOCABULARY.special if params.skip_special_tokens else frozenset[int]()
    stop_token = finish.kind is FinishKind.STOP and not params.include_stop
    shown = [not (token in hidden or (stop_token and place == len(ids) - 1)) for place, token in enumerate(ids)]
    raw = [VOCABULARY.bytes_of[token] if show else b"" for token, show in zip(ids, shown, strict=True)]
    decoder = TableDetokenizer(VOCABULARY)
    texts = [decoder.feed(token) if show else "" for token, show in zip(ids, shown, strict=True)]
    texts[-1] += decoder.flush()
    assert "".join(texts) == b"".join(raw).decode(errors="replace")
    return texts


def expected(ids: Sequence[int], params: TextParams, finish: Finish) -> Reading:
    """The rules spelt out over the uncut text."""
    texts = visible_texts(ids, params, finish)
    seen = ""
    for place, text in enumerate(texts):
        for character in text:
            seen += character
            found = [stop for stop in params.stop if seen.endswith(stop) and place + 1 > params.min_tokens]
            if found:
                stop = max(found, key=len)
                kept = [len(text) for text in texts[: place + 1]]
                return Reading(seen if params.include_stop else seen[: len(seen) - len(stop)], kept, stop)
    return Reading(seen, [len(text) for text in texts])


@given(IDS, PARAMS, FINISHES, st.data())
def test_law_1_text_lengths_and_stop_do_not_depend_on_the_grouping(
    ids: list[int], params: TextParams, finish: Finish, data: st.DataObject
) -> None:
    rows = [row for row in data.draw(cuts(ids)) if row]
    got, wanted = read(rows, params, finish), expected(ids, params, finish)
    assert (got.text, got.stop) == (wanted.text, wanted.stop)
    assert len(got.lengths) == len(wanted.lengths)
    assert got.lengths[:-1] == wanted.lengths[:-1]
    assert wanted.stop is not None or got.lengths[-1:] == wanted.lengths[-1:]


@given(IDS, PARAMS, FINISHES)
def test_law_4_the_text_between_two_offsets_is_the_tokens_own(
    ids: list[int], params: TextParams, finish: Finish
) -> None:
    """On the uncut text: what a stop string cut off ends beyond the text.

    Of the token that completed a stop string the part up to there is enough: no other token stands after it.
    """
    got = read([[token] for token in ids], params, finish)
    texts = visible_texts(ids, params, finish)
    uncut = "".join(texts)
    offset = 0
    for place, (length, text) in enumerate(zip(got.lengths, texts, strict=False), start=1):
        visible = uncut[offset : offset + length]
        assert visible == text or (got.stop is not None and place == len(got.lengths) and text.startswith(visible))
        offset += length
    assert uncut.startswith(got.text)
    assert len(got.text) <= offset


@given(IDS, st.data())
def test_a_finish_without_tokens_releases_all_that_was_held(ids: list[int], data: st.DataObject) -> None:
    params = TextParams(stop=("ab🌟", "éé"))
    alone = read([*data.draw(cuts(ids)), []], params, LENGTH)
    together = read([ids], params, LENGTH)
    assert (alone.text, alone.stop) == (together.text, together.stop)


def test_the_stop_token_counts_and_is_hidden() -> None:
    assert stream().feed([ord("a"), ord("b")], EOS) == TextPiece("a", 2, [1, 0])
    matched = Finish(FinishKind.STOP, matched=ord("b"))
    assert stream().feed([ord("a"), ord("b")], matched) == TextPiece("a", 2, [1, 0])


def test_a_known_stop_token_is_hidden_wherever_the_engine_puts_the_finish() -> None:
    texts = TextStream(TableDetokenizer(VOCABULARY), PLAIN, [ord("b")])
    assert texts.feed([*b"ab"], None) == TextPiece("a", 2, [1, 0])
    assert texts.feed([], EOS) == TextPiece("", 0, [])
    shown = TextStream(TableDetokenizer(VOCABULARY), TextParams(include_stop=True), [ord("b")])
    assert shown.feed([*b"ab"], None).text == "ab"


def test_the_stop_token_shows_where_stops_are_included() -> None:
    params = TextParams(include_stop=True)
    assert stream(params).feed([ord("a"), ord("b")], EOS) == TextPiece("ab", 2, [1, 1])


def test_skip_special_tokens_wins_over_include_stop() -> None:
    assert stream(TextParams(include_stop=True)).feed([ord("a"), END], EOS).text == "a"
    shown = TextParams(include_stop=True, skip_special_tokens=False)
    assert stream(shown).feed([ord("a"), END], EOS).text == "a<|im_end|>"


def test_the_last_token_of_another_finish_is_text() -> None:
    assert stream().feed([ord("a"), ord("b")], LENGTH).text == "ab"
    stopped_by_engine = Finish(FinishKind.STOP, matched="zz")
    assert stream().feed([ord("a"), ord("b")], stopped_by_engine).text == "ab"


def test_a_character_cut_off_at_the_end_is_one_replacement_of_the_last_token() -> None:
    assert stream().feed([ord("a"), 0xF0, 0x9F], LENGTH) == TextPiece("a\ufffd", 3, [1, 0, 1])


def test_tokens_after_a_stop_string_in_the_same_row_are_not_kept() -> None:
    """A speculative step of 4 tokens with a stop at the second."""
    piece = stream(TextParams(stop=("b",))).feed([*b"abcd"], LENGTH)
    assert piece == TextPiece("a", 2, [1, 1], stop="b")


def test_a_stop_string_over_tokens_keeps_the_token_that_completed_it() -> None:
    texts = stream(TextParams(stop=("</s",)))
    assert texts.feed([*b"a</"], None) == TextPiece("a", 3, [1, 1, 1])
    assert texts.feed([*b"s>"], None) == TextPiece("", 1, [1], stop="</s")


def test_ids_leave_at_once_where_text_is_held() -> None:
    texts = stream(TextParams(stop=("abc",)))
    assert texts.feed([ord("a")], None) == TextPiece("", 1, [1])
    assert texts.feed([ord("b")], LENGTH) == TextPiece("ab", 1, [1])


def test_min_tokens_holds_back_stop_strings() -> None:
    texts = stream(TextParams(stop=("a",), min_tokens=2))
    assert texts.feed([*b"aa"], None).text == "aa"
    assert texts.feed([*b"a"], None).stop == "a"


def test_a_stop_string_may_end_in_the_replacement_of_a_cut_character() -> None:
    piece = stream(TextParams(stop=("\ufffd",))).feed([ord("a"), 0xF0], LENGTH)
    assert piece == TextPiece("a", 2, [1, 1], stop="\ufffd")


def test_raw_token_mode_has_no_text() -> None:
    assert TextStream(None, TextParams(stop=("a",))).feed([*b"aaa"], LENGTH) == TextPiece("", 3, [0, 0, 0])


def test_text_of_the_engine_counts_on_the_last_token_of_its_row() -> None:
    assert stream().feed_text("é🌟", 3, None) == TextPiece("é🌟", 3, [0, 0, 2])


def test_law_4_text_of_the_engine_that_came_without_tokens_counts_on_the_next_token() -> None:
    texts = stream()
    assert texts.feed_text("ab", 0, None) == TextPiece("ab", 0, [])
    assert texts.feed_text("c", 1, None) == TextPiece("c", 1, [3])


@given(st.text("abé", max_size=12), STOPS, st.booleans(), st.data())
def test_law_1_text_of_the_engine_stops_as_ours_does(
    text: str, stops: tuple[str, ...], include_stop: bool, data: st.DataObject
) -> None:
    params = TextParams(stop=stops, include_stop=include_stop)
    pieces = data.draw(cut_texts(text))
    texts, reading = stream(params), Reading()
    for number, piece in enumerate(pieces, start=1):
        reading.append(texts.feed_text(piece, 1, LENGTH if number == len(pieces) else None))
        if reading.stop is not None:
            break
    if text:
        wanted = expected(ids_of(TOKENIZER, text), params, LENGTH)
        assert (reading.text, reading.stop) == (wanted.text, wanted.stop)
