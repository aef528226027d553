import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from processors.delta import Logprobs
from processors.dialects.legacy_logprobs import LegacyColumns, LegacyLogprobs
from processors.dialects.positions import Shown, output_positions
from tests.processors.answers import Answer, Token, answers, logprobs_of
from tests.processors.dialects.vocabularies import COLLIDING, EMPTY, LIKE_AN_ID, VOCABULARY
from tests.processors.frames import sampled_logprobs
from tests.processors.strategies import LOGPROBS, cuts
from tests.sse import strict_json

ANSWERS = answers(vocabulary=VOCABULARY.size)


def render(answer: Answer, tokens: list[Token], renderer: LegacyLogprobs | None = None) -> Any:
    lengths = [len(token.text) for token in tokens]
    return object_of([token.id for token in tokens], lengths, logprobs_of(answer, tokens), renderer)


def object_of(ids: list[int], lengths: list[int], logprobs: Logprobs, renderer: LegacyLogprobs | None = None) -> Any:
    """The object of one run, with all alternatives that the engine sent."""
    columns = LegacyColumns()
    (renderer or LegacyLogprobs(VOCABULARY)).add(
        columns, lengths, output_positions(ids, logprobs, Shown(logprobs.top_k))
    )
    block = columns.json()
    assert len(block.decode().splitlines()) == 1
    return strict_json(block)


def narrowed(answer: Answer, top_k: int) -> Answer:
    """The same answer with fewer alternatives asked for."""
    tokens = [msgspec.structs.replace(token, alternatives=token.alternatives[:top_k]) for token in answer.tokens]
    return msgspec.structs.replace(answer, tokens=tokens, top_k=top_k)


@st.composite
def collisions(draw: st.DrawFn) -> Answer:
    """One token among alternatives that share texts."""
    ids = draw(st.lists(st.sampled_from(COLLIDING), min_size=2, max_size=6, unique=True))
    values = sorted(draw(st.lists(LOGPROBS, min_size=len(ids), max_size=len(ids))), reverse=True)
    sampled = draw(st.sampled_from(COLLIDING))
    alternatives = list(zip(ids, values, strict=True))
    value = dict(alternatives).get(sampled, -7.0)
    return Answer(tokens=[Token(id=sampled, value=value, alternatives=alternatives)], top_k=len(ids))


@given(ANSWERS)
def test_law_3_four_arrays_of_one_length(answer: Answer) -> None:
    block = render(answer, answer.tokens)
    assert {len(column) for column in block.values()} == {len(answer.tokens)}


@given(ANSWERS, st.booleans(), st.integers(0, 9), st.data())
def test_law_1_runs_join_to_the_whole(answer: Answer, as_ids: bool, offset: int, data: st.DataObject) -> None:
    def renderer() -> LegacyLogprobs:
        return LegacyLogprobs(VOCABULARY, tokens_as_token_ids=as_ids, offset=offset)

    running = renderer()
    joined: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    for run in data.draw(cuts(answer.tokens)):
        for name, column in render(answer, run, running).items():
            joined[name] += column
    assert joined == render(answer, answer.tokens, renderer())


@given(ANSWERS, st.integers(0, 9))
def test_law_4_offsets_count_code_points_from_the_first_character(answer: Answer, start: int) -> None:
    block = render(answer, answer.tokens, LegacyLogprobs(VOCABULARY, offset=start))
    text = "p" * start + "".join(token.text for token in answer.tokens)
    ends = [*block["text_offset"][1:], len(text)]
    assert [text[at:end] for at, end in zip(block["text_offset"], ends, strict=True)] == [t.text for t in answer.tokens]


@given(ANSWERS | collisions())
def test_law_5_every_entry_is_there_and_the_sampled_one_has_its_key_and_value(answer: Answer) -> None:
    block = render(answer, answer.tokens)
    for place, token in enumerate(answer.tokens):
        entries = block["top_logprobs"][place]
        ids = [token_id for token_id, _ in token.alternatives]
        assert len(entries) == len(ids) + (token.id not in ids)
        assert entries[block["tokens"][place]] == block["token_logprobs"][place] == max(token.value, -9999.0)
        values = [max(value, -9999.0) for _, value in token.alternatives]
        assert list(entries.values())[: len(ids)] == values


@given(ANSWERS | collisions(), st.integers(0, 5))
def test_law_5_asking_for_fewer_changes_no_key_and_no_value(answer: Answer, top_k: int) -> None:
    fewer = narrowed(answer, min(top_k, answer.top_k))
    less, more = render(fewer, fewer.tokens), render(answer, answer.tokens)
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert less[name] == more[name]
    for some, all_ in zip(less["top_logprobs"], more["top_logprobs"], strict=True):
        assert some.items() <= all_.items()


def test_logprobs_0_is_the_sampled_token_alone() -> None:
    assert object_of([ord("a")], [1], sampled_logprobs([-0.5])) == {
        "tokens": ["a"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"a": -0.5}],
        "text_offset": [0],
    }


def test_the_sampled_token_joins_the_alternatives_where_it_is_not_among_them() -> None:
    tokens = [Token(id=ord("z"), value=-9.0, alternatives=[(ord("a"), -0.1), (ord("b"), -0.2)])]
    assert render(Answer(tokens=tokens, top_k=2), tokens)["top_logprobs"] == [{"a": -0.1, "b": -0.2, "z": -9.0}]


def test_of_two_ids_with_one_text_the_more_likely_keeps_it() -> None:
    tokens = [Token(id=ord("a"), value=-1.0, alternatives=[(EMPTY, -0.1), (EMPTY + 2, -0.2)])]
    expected = {"": -0.1, f"token_id:{EMPTY + 2}": -0.2, "a": -1.0}
    assert render(Answer(tokens=tokens, top_k=2), tokens)["top_logprobs"] == [expected]


def test_the_sampled_token_keeps_its_text_before_a_more_likely_twin() -> None:
    tokens = [Token(id=EMPTY, value=-0.2, alternatives=[(EMPTY + 2, -0.1), (EMPTY, -0.2)])]
    expected = {f"token_id:{EMPTY + 2}": -0.1, "": -0.2}
    assert render(Answer(tokens=tokens, top_k=2), tokens)["top_logprobs"] == [expected]


def test_a_text_that_looks_like_an_id_never_takes_that_ids_key() -> None:
    """The text of one token is `token_id:N`, and N's own text is taken."""
    tokens = [Token(id=EMPTY, value=-0.1, alternatives=[(EMPTY, -0.1), (LIKE_AN_ID, -0.2), (EMPTY + 1, -0.3)])]
    entries = render(Answer(tokens=tokens, top_k=3), tokens)["top_logprobs"][0]
    assert entries[""] == -0.1
    assert entries[f"token_id:{EMPTY + 1}"] == -0.3
    assert sorted(entries.values()) == [-0.3, -0.2, -0.1]


def test_a_token_that_is_no_text_is_named_by_its_bytes() -> None:
    block = object_of([0xF0, 0x9F], [0, 0], sampled_logprobs([-1.0, -2.0]))
    assert block["tokens"] == [r"bytes:\xf0", r"bytes:\x9f"]


def test_tokens_as_token_ids_name_every_token() -> None:
    tokens = [Token(id=5, value=-1.0, alternatives=[(6, -0.5)])]
    block = render(Answer(tokens=tokens, top_k=1), tokens, LegacyLogprobs(VOCABULARY, tokens_as_token_ids=True))
    assert block["tokens"] == ["token_id:5"]
    assert block["top_logprobs"] == [{"token_id:6": -0.5, "token_id:5": -1.0}]


def test_minus_infinity_is_the_floor_everywhere() -> None:
    logprobs = Logprobs([-math.inf], [0], 1, [7], [-math.inf], 0, [], [])
    block = object_of([7], [1], logprobs)
    assert block["token_logprobs"] == [-9999.0]
    assert list(block["top_logprobs"][0].values()) == [-9999.0]
