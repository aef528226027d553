from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engines.errors import ContextLengthExceeded, InvalidValue, RequestError, UnsupportedFeature
from engines.protocol import Capabilities, EngineInfo, LogprobParams, LogprobsMode, SamplingParams
from processors.input import InputProcessor
from processors.limits import WHOLE_VOCABULARY, Limits
from processors.request import (
    ChatPrompt,
    GenerationRequest,
    PreparedRequest,
    Prompt,
    SamplingWishes,
    TextPrompt,
    TokenPrompt,
)
from processors.text import TextParams
from tests.processors import toy_tokenizers
from tests.processors.toy_tokenizers import id_of, ids_of, text_tokenizer

CONTEXT = 32
ALL = Capabilities(
    sampling=frozenset(SamplingParams.__struct_fields__),
    token_logprobs=True,
    chosen_logprobs=True,
    prompt_logprobs=True,
    logprobs_modes=frozenset(LogprobsMode),
    priority=True,
)
NONE = Capabilities(sampling=frozenset({"max_tokens", "temperature"}))
TOKENIZER = text_tokenizer(toy_tokenizers.byte_level())
PROMPT = TokenPrompt([1, 2, 3])
FREE = SamplingWishes(max_tokens=4)


def processor(
    capabilities: Capabilities = ALL, *, limits: Limits | None = None, tokenizer: Tokenizer | None = None, **info: Any
) -> InputProcessor:
    owned = TOKENIZER if tokenizer is None else text_tokenizer(tokenizer)
    return InputProcessor(owned, info_of(capabilities, **({"vocab_size": owned.vocabulary.size} | info)), limits)


def info_of(capabilities: Capabilities, **more: Any) -> EngineInfo:
    fields = {"max_model_len": CONTEXT} | more
    return EngineInfo(engine_id="e0", model="m", tokenizer="t", eos_token_ids=(), capabilities=capabilities, **fields)


async def prepare(prompt: Prompt = PROMPT, inputs: InputProcessor | None = None, **fields: Any) -> PreparedRequest:
    request = GenerationRequest(prompt=prompt, **({"sampling": FREE} | fields))
    return await (inputs or processor()).prepare(request)


async def refused(
    kind: type[RequestError], param: str, prompt: Prompt = PROMPT, inputs: InputProcessor | None = None, **fields: Any
) -> str:
    """Law 10: the refusal names the field."""
    with pytest.raises(RequestError) as raised:
        await prepare(prompt, inputs, **fields)
    assert type(raised.value) is kind
    assert raised.value.param == param
    return raised.value.message


async def test_a_text_is_tokenized_and_kept() -> None:
    prepared = await prepare(TextPrompt("the 🌟"), stream=True, text=TextParams(stop=("x",)))
    assert prepared.engine_request.prompt_token_ids == ids_of(toy_tokenizers.byte_level(), "the 🌟")
    assert (prepared.prompt_text, prepared.stream, prepared.text) == ("the 🌟", True, TextParams(stop=("x",)))


async def test_token_ids_pass_as_they_are() -> None:
    prepared = await prepare(TokenPrompt([5, 5, 0]))
    assert prepared.engine_request.prompt_token_ids == [5, 5, 0]
    assert prepared.prompt_text is None


async def test_messages_go_through_the_template_which_brings_its_own_special_tokens() -> None:
    prompt = ChatPrompt(messages=[{"role": "user", "content": "the"}])
    prepared = await prepare(prompt)
    start, end = (id_of(toy_tokenizers.byte_level(), piece) for piece in toy_tokenizers.SPECIALS)
    assert prepared.engine_request.prompt_token_ids == [start, *ids_of(toy_tokenizers.byte_level(), "the"), end, start]
    assert prepared.prompt_text == "<|im_start|>the<|im_end|><|im_start|>"


async def test_ids_are_our_own_and_unique() -> None:
    ids = {(await prepare()).engine_request.id for _ in range(100)}
    assert len(ids) == 100


async def test_what_the_engine_needs_is_passed_on() -> None:
    wishes = LogprobParams(top_k=3, token_ids=(7,), prompt_start=0, mode=LogprobsMode.PROCESSED)
    request = (await prepare(logprobs=wishes, priority=2)).engine_request
    assert (request.logprobs, request.priority) == (wishes, 2)


@pytest.mark.parametrize("prompt", [TokenPrompt([]), TextPrompt("")])
async def test_law_10_an_empty_prompt_is_refused(prompt: Prompt) -> None:
    await refused(InvalidValue, "prompt", prompt)


@pytest.mark.parametrize("bad", [-1, TOKENIZER.vocabulary.size, 2**31])
async def test_law_10_ids_outside_the_vocabulary_are_refused(bad: int) -> None:
    assert str(bad) in await refused(InvalidValue, "prompt", TokenPrompt([1, bad]))
    await refused(InvalidValue, "logit_bias", sampling=SamplingWishes(max_tokens=1, logit_bias={bad: 1.0}))
    await refused(InvalidValue, "stop_token_ids", sampling=SamplingWishes(max_tokens=1, stop_token_ids=(bad,)))
    await refused(InvalidValue, "logprob_token_ids", logprobs=LogprobParams(token_ids=(bad,)))


async def test_ids_that_pad_the_output_layer_are_in_the_vocabulary() -> None:
    inputs = processor(vocab_size=TOKENIZER.vocabulary.size + 64)
    last = TOKENIZER.vocabulary.size + 63
    assert (await prepare(TokenPrompt([last]), inputs)).engine_request.prompt_token_ids == [last]


@given(st.integers(1, CONTEXT + 3), st.none() | st.integers(0, CONTEXT + 3))
async def test_context_arithmetic(prompt: int, max_tokens: int | None) -> None:
    """One token must be left for an answer; what is asked beyond the rest is cut to it.

    A prompt that is only scored may fill the context. More tokens than the context are refused.
    """
    sampling = SamplingWishes(max_tokens=max_tokens)
    if max_tokens is not None and max_tokens > CONTEXT:
        await refused(InvalidValue, "max_tokens", TokenPrompt([1] * prompt), sampling=sampling)
    elif prompt > CONTEXT or (prompt == CONTEXT and max_tokens != 0):
        message = await refused(ContextLengthExceeded, "prompt", TokenPrompt([1] * prompt), sampling=sampling)
        assert str(CONTEXT) in message
        assert str(prompt) in message
    else:
        room = CONTEXT - prompt
        asked = room if max_tokens is None else max_tokens
        request = (await prepare(TokenPrompt([1] * prompt), sampling=sampling)).engine_request
        assert request.sampling.max_tokens == min(asked, room)


@given(st.integers(1, CONTEXT - 1), st.none() | st.integers(0, CONTEXT), st.integers(0, CONTEXT + 3))
async def test_no_engine_sees_min_tokens_above_max_tokens(prompt: int, max_tokens: int | None, min_tokens: int) -> None:
    sampling = SamplingWishes(max_tokens=max_tokens, min_tokens=min_tokens)
    if max_tokens is not None and min_tokens > max_tokens:
        await refused(InvalidValue, "min_tokens", TokenPrompt([1] * prompt), sampling=sampling)
    elif min_tokens > CONTEXT - prompt:
        await refused(ContextLengthExceeded, "min_tokens", TokenPrompt([1] * prompt), sampling=sampling)
    else:
        request = (await prepare(TokenPrompt([1] * prompt), sampling=sampling)).engine_request
        assert request.sampling.min_tokens == min_tokens <= request.sampling.max_tokens


async def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = processor()
    longest = TOKENIZER.vocabulary.longest_token

    async def encode(text: str, *, add_special_tokens: bool = True) -> list[int]:
        raise AssertionError("tokenized")

    monkeypatch.setattr(TOKENIZER, "encode", encode)
    assert "at least" in await refused(
        ContextLengthExceeded, "prompt", TextPrompt("x" * longest * (CONTEXT + 1)), inputs
    )
    prompt = ChatPrompt(messages=[{"role": "user", "content": "x" * longest * (CONTEXT + 1)}])
    await refused(ContextLengthExceeded, "messages", prompt, inputs)


async def test_law_10_fields_are_called_what_the_client_calls_them() -> None:
    prompt = ChatPrompt(messages=[{"role": "user", "content": "the " * CONTEXT}])
    await refused(ContextLengthExceeded, "messages", prompt)
    wishes = SamplingWishes(max_tokens=CONTEXT + 1)
    renamed = {"max_tokens": "max_completion_tokens"}
    message = await refused(InvalidValue, "max_completion_tokens", sampling=wishes, renamed=renamed)
    assert message.startswith("max_completion_tokens is")


async def test_a_text_that_may_fit_is_tokenized_whatever_its_length() -> None:
    """The bound is sure: the longest token, over and over, fits."""
    tool = "<工具 call>"
    assert len(tool.encode()) == TOKENIZER.vocabulary.longest_token
    prepared = await prepare(TextPrompt(tool * (CONTEXT - 1)))
    assert len(prepared.engine_request.prompt_token_ids) == CONTEXT - 1


async def test_a_tokenizer_without_a_table_has_no_cheap_bound() -> None:
    """A word of any length is one [UNK]."""
    inputs = processor(tokenizer=toy_tokenizers.wordpiece())
    prepared = await prepare(TextPrompt("q" * 5000), inputs)
    assert prepared.engine_request.prompt_token_ids == [id_of(toy_tokenizers.wordpiece(), "[UNK]")]


NOT_NEUTRAL = {
    "min_tokens": 1,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.1,
    "seed": 0,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "logit_bias": {1: 1.0},
    "stop_token_ids": (1,),
    "ignore_eos": True,
}


@pytest.mark.parametrize(("field", "value"), NOT_NEUTRAL.items())
async def test_law_11_what_the_engine_cannot_do_is_refused_by_name(field: str, value: Any) -> None:
    sampling = msgspec.structs.replace(FREE, **{field: value})
    message = await refused(UnsupportedFeature, field, inputs=processor(NONE), sampling=sampling)
    assert "e0" in message
    assert field in message
    request = (await prepare(sampling=sampling)).engine_request
    assert getattr(request.sampling, field) == value


async def test_neutral_values_ask_for_nothing() -> None:
    sampling = msgspec.structs.replace(FREE, temperature=0.0)
    assert (await prepare(inputs=processor(NONE), sampling=sampling)).engine_request.sampling.greedy


def test_every_sampling_wish_is_checked() -> None:
    assert set(SamplingWishes.__struct_fields__) == set(SamplingParams.__struct_fields__)
    assert {*NOT_NEUTRAL, "max_tokens", "temperature"} == set(SamplingParams.__struct_fields__)


async def test_law_11_priorities_are_refused_where_there_are_none() -> None:
    assert "e0" in await refused(UnsupportedFeature, "priority", inputs=processor(NONE), priority=1)
    assert (await prepare(inputs=processor(NONE), priority=0)).engine_request.priority == 0


@pytest.mark.parametrize(
    ("missing", "wishes", "param"),
    [
        ({"token_logprobs": False}, LogprobParams(), "logprobs"),
        ({"chosen_logprobs": False}, LogprobParams(token_ids=(1,)), "logprob_token_ids"),
        ({"prompt_logprobs": False}, LogprobParams(prompt_start=0), "prompt_logprobs"),
        (
            {"logprobs_modes": frozenset({LogprobsMode.RAW})},
            LogprobParams(mode=LogprobsMode.PROCESSED),
            "logprobs_mode",
        ),
    ],
)
async def test_law_11_logprobs_that_the_engine_has_not_are_refused(
    missing: dict[str, Any], wishes: LogprobParams, param: str
) -> None:
    lacking = msgspec.structs.replace(ALL, **missing)
    assert "e0" in await refused(UnsupportedFeature, param, inputs=processor(lacking), logprobs=wishes)
    assert (await prepare(logprobs=wishes)).engine_request.logprobs == wishes


@pytest.mark.parametrize(
    ("engine_limit", "setting", "limit"), [(None, 20, 20), (5, 20, 5), (30, 20, 20), (0, 20, 0), (None, 10**6, 300)]
)
async def test_law_12_alternatives_are_bounded_by_setting_engine_and_vocabulary(
    engine_limit: int | None, setting: int, limit: int
) -> None:
    capabilities = msgspec.structs.replace(ALL, max_top_logprobs=engine_limit)
    inputs = processor(capabilities, limits=Limits(max_logprobs=setting), vocab_size=300)
    request = await prepare(inputs=inputs, logprobs=LogprobParams(top_k=limit))
    assert request.engine_request.logprobs == LogprobParams(top_k=limit)
    message = await refused(InvalidValue, "logprobs", inputs=inputs, logprobs=LogprobParams(top_k=limit + 1))
    assert str(limit) in message


@pytest.mark.parametrize(
    "wishes", [LogprobParams(top_k=-1), LogprobParams(prompt_start=-1), LogprobParams(prompt_start=4)]
)
async def test_law_10_logprob_wishes_out_of_range_are_refused(wishes: LogprobParams) -> None:
    param = "logprobs" if wishes.prompt_start is None else "prompt_logprobs"
    await refused(InvalidValue, param, logprobs=wishes)


async def test_the_whole_vocabulary_may_be_asked_for_only_by_setting() -> None:
    wishes = LogprobParams(top_k=WHOLE_VOCABULARY)
    await refused(InvalidValue, "logprobs", logprobs=wishes)
    free = processor(limits=Limits(max_logprobs=WHOLE_VOCABULARY))
    request = (await prepare(inputs=free, logprobs=wishes)).engine_request
    assert request.logprobs == LogprobParams(top_k=TOKENIZER.vocabulary.size)
    assert (await prepare(inputs=free, logprobs=LogprobParams(top_k=100))).engine_request.logprobs is not None
    bounded = processor(msgspec.structs.replace(ALL, max_top_logprobs=20), limits=Limits(max_logprobs=WHOLE_VOCABULARY))
    assert "20" in await refused(InvalidValue, "logprobs", inputs=bounded, logprobs=wishes)


@pytest.mark.parametrize(
    ("wishes", "prompt", "max_tokens", "entries"),
    [
        (LogprobParams(), 3, 4, 4),
        (LogprobParams(top_k=2), 3, 4, 12),
        (LogprobParams(top_k=1, token_ids=(5, 6)), 3, 4, 16),
        (LogprobParams(top_k=2, prompt_start=0), 10, 0, 30),
        (LogprobParams(top_k=2, prompt_start=4), 10, 4, 30),
        (LogprobParams(prompt_start=10), 10, 4, 4),
        (LogprobParams(top_k=1), 30, None, 4),
    ],
)
async def test_law_12_positions_times_values_are_bounded_and_the_limit_is_named(
    wishes: LogprobParams, prompt: int, max_tokens: int | None, entries: int
) -> None:
    fields: dict[str, Any] = {"logprobs": wishes, "sampling": SamplingWishes(max_tokens=max_tokens)}
    asked = TokenPrompt([1] * prompt)
    assert await prepare(asked, processor(limits=Limits(max_logprob_entries=entries)), **fields)
    tight = processor(limits=Limits(max_logprob_entries=entries - 1))
    message = await refused(InvalidValue, "top_logprobs", asked, tight, renamed={"logprobs": "top_logprobs"}, **fields)
    assert "--max-logprob-entries" in message
    assert str(entries) in message
    assert str(entries - 1) in message


async def test_an_id_asked_for_twice_is_refused() -> None:
    await refused(InvalidValue, "logprob_token_ids", logprobs=LogprobParams(token_ids=(7, 8, 7)))


async def test_without_a_tokenizer_only_token_ids_are_taken() -> None:
    """Raw-token mode. Stop strings have no text to stand in."""
    inputs = InputProcessor(None, info_of(ALL, vocab_size=300))
    prepared = await prepare(TokenPrompt([5, 6]), inputs)
    assert (prepared.engine_request.prompt_token_ids, prepared.prompt_text) == ([5, 6], None)
    await refused(UnsupportedFeature, "messages", ChatPrompt(messages=[{"role": "user", "content": "the"}]), inputs)
    await refused(UnsupportedFeature, "text", TextPrompt("the"), inputs, renamed={"prompt": "text"})
    await refused(UnsupportedFeature, "stop", inputs=inputs, text=TextParams(stop=("x",)))


async def test_prompts_and_samples_come_in_order_and_each_is_its_own_request() -> None:
    request = GenerationRequest(sampling=msgspec.structs.replace(FREE, seed=5))
    prompts = [TokenPrompt([number]) for number in range(1, 41)]
    prepared = [each.engine_request for each in await processor().prepare_all(request, prompts, 2)]
    assert [each.prompt_token_ids for each in prepared] == [[number] for number in range(1, 41) for _ in range(2)]
    assert [each.sampling.seed for each in prepared] == [5, 6] * 40
    assert len({each.id for each in prepared}) == 80


async def test_one_wrong_prompt_refuses_the_whole_batch() -> None:
    request = GenerationRequest(sampling=FREE)
    with pytest.raises(ContextLengthExceeded):
        await processor().prepare_all(request, [PROMPT, TokenPrompt([1] * CONTEXT)], 1)
