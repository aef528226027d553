import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from processors.delta import Logprobs
from processors.dialects.chat_logprobs import ChatLogprobs
from processors.dialects.positions import Shown, output_positions
from tests.processors.answers import Answer, Token, answers, logprobs_of
from tests.processors.dialects.vocabularies import VOCABULARY
from tests.processors.frames import sampled_logprobs
from tests.processors.strategies import cuts
from tests.processors.toy_tokenizers import byte_level, id_of
from tests.sse import strict_json

ANSWERS = answers(vocabulary=VOCABULARY.size)


def render(answer: Answer, tokens: list[Token], *, as_ids: bool = False) -> Any:
    renderer = ChatLogprobs(VOCABULARY, tokens_as_token_ids=as_ids)
    ids = [token.id for token in tokens]
    block = renderer.render(output_positions(ids, logprobs_of(answer, tokens), Shown(answer.top_k)))
    assert len(block.decode().splitlines()) == 1
    whole = strict_json(block)
    assert whole.keys() == {"content", "refusal"}
    assert whole["refusal"] is None
    return whole["content"]


def entry(token_id: int, value: float) -> dict[str, Any]:
    raw = VOCABULARY.bytes_of[token_id]
    return {"token": raw.decode(errors="replace"), "logprob": max(value, -9999.0), "bytes": list(raw)}


@given(ANSWERS)
def test_law_5_the_alternatives_are_the_k_best_in_order_and_no_other(answer: Answer) -> None:
    for rendered, token in zip(render(answer, answer.tokens), answer.tokens, strict=True):
        tops = [entry(token_id, value) for token_id, value in token.alternatives]
        assert rendered == entry(token.id, token.value) | {"top_logprobs": tops}


@given(ANSWERS, st.booleans(), st.data())
def test_law_1_runs_join_to_the_whole(answer: Answer, as_ids: bool, data: st.DataObject) -> None:
    runs = data.draw(cuts(answer.tokens))
    joined = [item for run in runs for item in render(answer, run, as_ids=as_ids)]
    assert joined == render(answer, answer.tokens, as_ids=as_ids)


def test_law_4_a_star_over_three_tokens() -> None:
    """Three entries; bytes [240,159], [140], [159] in sum."""
    ids = [id_of(byte_level(), "ðŁ"), 140, 159]
    positions = output_positions(ids, sampled_logprobs([-1.0, -2.0, -3.0]), Shown(0))
    content = strict_json(ChatLogprobs(VOCABULARY).render(positions))["content"]
    assert [item["bytes"] for item in content] == [[240, 159], [140], [159]]
    assert [item["token"] for item in content] == ["\ufffd"] * 3
    assert [item["top_logprobs"] for item in content] == [[]] * 3


def test_tokens_as_token_ids_keep_the_true_bytes() -> None:
    tokens = [Token(id=ord("a"), value=-1.0, alternatives=[(0xF0, -0.5)])]
    (item,) = render(Answer(tokens=tokens, top_k=1), tokens, as_ids=True)
    assert (item["token"], item["bytes"]) == ("token_id:97", [97])
    assert (item["top_logprobs"][0]["token"], item["top_logprobs"][0]["bytes"]) == ("token_id:240", [240])


def test_minus_infinity_is_the_floor() -> None:
    logprobs = Logprobs([-math.inf], [0], 1, [7], [-math.inf], 0, [], [])
    positions = output_positions([7], logprobs, Shown(1))
    (item,) = strict_json(ChatLogprobs(VOCABULARY).render(positions))["content"]
    assert item["logprob"] == item["top_logprobs"][0]["logprob"] == -9999.0
