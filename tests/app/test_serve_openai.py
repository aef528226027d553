"""The OpenAI SDK against `tailrace serve` with the real model: what it is for, and its exceptions."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai.types import Completion, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionTokenLogprob

from tests.client import GUARD
from tests.reference_model import ReferenceModel
from tests.serve_process import ServeProcess

pytestmark = [pytest.mark.serve, pytest.mark.model]

COUNT = 8
PROMPT = "The capital of France is"
QUESTION = "What is 2+2?"
EXTRA = {"ignore_eos": True}


# Answers that the SDK's types do not describe are refused. Its type of completions' chunks has no room for the
# finish_reason null that OpenAI itself sends, so these are read without.
LENIENT = {"_strict_response_validation": False}


def sdk(url: str, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(
        api_key=key,
        base_url=url + "/v1",
        max_retries=0,
        timeout=GUARD,
        http_client=openai.DefaultHttpxClient(trust_env=False),
        _strict_response_validation=True,
    )


@pytest.fixture
def client(served: ServeProcess) -> Iterator[openai.OpenAI]:
    with sdk(served.url) as client:
        yield client


@pytest.fixture
async def async_client(served: ServeProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        api_key="any",
        base_url=served.url + "/v1",
        max_retries=0,
        timeout=GUARD,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        _strict_response_validation=True,
    ) as client:
        yield client


@pytest.fixture
def model(client: openai.OpenAI) -> str:
    (only,) = client.models.list().data
    assert client.models.retrieve(only.id) == only
    return only.id


class Expected:
    """What the reference model makes of a prompt, greedily."""

    def __init__(self, reference: ReferenceModel, prompt: list[int]) -> None:
        self._reference = reference
        self.prompt = prompt
        self.ids = reference.generate(prompt, COUNT)
        self.text = reference.text(self.ids)

    def check_usage(self, usage: CompletionUsage | None) -> None:
        assert usage is not None
        counted = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
        assert counted == (len(self.prompt), COUNT, len(self.prompt) + COUNT)
        assert usage.prompt_tokens_details is not None

    def check_completions(self, answers: list[Completion]) -> None:
        """One answer, or the chunks of a stream without the one that holds the usage."""
        choices = [answer.choices[0] for answer in answers]
        assert "".join(choice.text for choice in choices) == self.text
        assert [choice.finish_reason for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1].finish_reason == "length"
        tokens, values, tops = list[str](), list[float](), list[dict[str, float]]()
        for choice in choices:
            assert choice.logprobs is not None
            tokens += choice.logprobs.tokens or []
            values += choice.logprobs.token_logprobs or []
            tops += choice.logprobs.top_logprobs or []
        by_id = [
            {self._reference.ids(name)[0]: value for name, value in top.items() if name in (token, *list(top)[:2])}
            for token, top in zip(tokens, tops, strict=True)
        ]
        assert "".join(tokens) == self.text
        self._reference.check(self.prompt, self.ids, values, by_id)

    def check_tokens(self, tokens: list[ChatCompletionTokenLogprob]) -> None:
        assert [bytes(token.bytes or []).decode() for token in tokens] == [token.token for token in tokens]
        shown = b"".join(bytes(token.bytes or []) for token in tokens).decode()
        assert shown.replace("<|im_end|>", "") == self.text
        tops = [{self._reference.ids(top.token)[0]: top.logprob for top in token.top_logprobs} for token in tokens]
        assert [len(top) for top in tops] == [2] * COUNT
        self._reference.check(self.prompt, self.ids, [token.logprob for token in tokens], tops)

    def check_chat(self, answer: ChatCompletion) -> None:
        (choice,) = answer.choices
        assert (choice.message.role, choice.message.content) == ("assistant", self.text)
        assert choice.finish_reason == "length"
        assert choice.logprobs is not None
        self.check_tokens(choice.logprobs.content or [])
        self.check_usage(answer.usage)

    def check_chunks(self, chunks: list[ChatCompletionChunk]) -> None:
        *chunks, last = chunks
        assert last.choices == []
        self.check_usage(last.usage)
        assert not any(chunk.usage for chunk in chunks)
        choices = [chunk.choices[0] for chunk in chunks]
        assert [choice.delta.role for choice in choices] == ["assistant"] + [None] * (len(choices) - 1)
        assert "".join(choice.delta.content or "" for choice in choices) == self.text
        assert [choice.finish_reason for choice in choices] == [None] * (len(choices) - 1) + ["length"]
        self.check_tokens([token for choice in choices if choice.logprobs for token in choice.logprobs.content or []])


@pytest.fixture(scope="module")
def completed(reference: ReferenceModel) -> Expected:
    return Expected(reference, reference.ids(PROMPT))


@pytest.fixture(scope="module")
def answered(reference: ReferenceModel) -> Expected:
    return Expected(reference, reference.chat_ids([{"role": "user", "content": QUESTION}]))


def test_sync(client: openai.OpenAI, model: str, completed: Expected, answered: Expected) -> None:
    completion = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=COUNT, temperature=0, logprobs=2, extra_body=EXTRA
    )
    completed.check_completions([completion])
    completed.check_usage(completion.usage)
    chat = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        max_completion_tokens=COUNT,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        extra_body=EXTRA,
    )
    answered.check_chat(chat)


def test_sync_streams(client: openai.OpenAI, model: str, completed: Expected, answered: Expected) -> None:
    with client.with_options(_extra_kwargs=LENIENT).completions.create(
        model=model,
        prompt=PROMPT,
        max_tokens=COUNT,
        temperature=0,
        logprobs=2,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=EXTRA,
    ) as stream:
        *chunks, last = list(stream)
    completed.check_completions(chunks)
    assert last.choices == []
    completed.check_usage(last.usage)
    with client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        max_completion_tokens=COUNT,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=EXTRA,
    ) as chat_stream:
        answered.check_chunks(list(chat_stream))


async def test_async(async_client: openai.AsyncOpenAI, model: str, completed: Expected, answered: Expected) -> None:
    completion = await async_client.completions.create(
        model=model, prompt=PROMPT, max_tokens=COUNT, temperature=0, logprobs=2, extra_body=EXTRA
    )
    completed.check_completions([completion])
    completed.check_usage(completion.usage)
    chat = await async_client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=COUNT,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        extra_body=EXTRA,
    )
    answered.check_chat(chat)


async def test_async_streams(
    async_client: openai.AsyncOpenAI, model: str, completed: Expected, answered: Expected
) -> None:
    async with await async_client.with_options(_extra_kwargs=LENIENT).completions.create(
        model=model, prompt=PROMPT, max_tokens=COUNT, temperature=0, logprobs=2, stream=True, extra_body=EXTRA
    ) as stream:
        completed.check_completions([chunk async for chunk in stream])
    async with await async_client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=COUNT,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=EXTRA,
    ) as chat_stream:
        answered.check_chunks([chunk async for chunk in chat_stream])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"temperature": -1}, "temperature", "invalid_value"),
        ({"max_tokens": 10**6}, "max_tokens", "invalid_value"),
        ({"max_completion_tokens": 10**6}, "max_completion_tokens", "invalid_value"),
        ({"messages": [{"role": "user", "content": "word " * 9000}]}, "messages", "context_length_exceeded"),
        ({"logprobs": True, "top_logprobs": 99}, "top_logprobs", "invalid_value"),
        ({"logit_bias": {"999999": 1}}, "logit_bias", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
    ],
)
def test_a_bad_request(
    client: openai.OpenAI, model: str, stream: bool, change: dict[str, Any], param: str, code: str
) -> None:
    wishes: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**(wishes | change), stream=stream)
    assert (caught.value.status_code, caught.value.param, caught.value.code) == (400, param, code)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_is_not_served(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-4o", prompt="x", stream=stream)
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_keys(guarded: ServeProcess) -> None:
    with sdk(guarded.url, "wrong") as wrong, pytest.raises(openai.AuthenticationError) as caught:
        wrong.models.list()
    assert caught.value.code == "invalid_api_key"
    with sdk(guarded.url, "KEY") as right:
        (model,) = right.models.list().data
        answer = right.completions.create(model=model.id, prompt=PROMPT, max_tokens=1, temperature=0)
        assert answer.choices[0].text == " Paris"
