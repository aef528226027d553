"""curl -N, really run, against `tailrace serve` with the real model."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.client import GUARD
from tests.reference_model import ReferenceModel
from tests.serve_process import ServeProcess, metric
from tests.sse import Event, EventReader
from tests.wire import join_chat, join_completion

pytestmark = [pytest.mark.serve, pytest.mark.model]

COUNT = 10
GREEDY = {"max_tokens": COUNT, "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}
USAGE = {"stream_options": {"include_usage": True}}


@contextlib.asynccontextmanager
async def curl(url: str, body: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """Run curl on a stream; yields what it prints, as it prints it, and checks that it ends well."""
    program = shutil.which("curl")
    assert program is not None, "this test needs curl"
    process = await asyncio.create_subprocess_exec(
        *(
            program,
            "-N",
            "--fail",
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "-H",
            "Content-Type: application/json",
        ),
        *("-d", msgspec.json.encode(body).decode(), url),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(GUARD):
            yield process.stdout
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def first_and_rest(served: ServeProcess, path: str, body: dict[str, Any]) -> list[Event]:
    """All events of a stream; the first one was here before the engine had made the last token."""
    reader = EventReader()
    async with served.client() as client:
        before = await metric(client, "generation_tokens_total")
        async with curl(served.url + path, body) as output:
            events = list(reader.feed(await output.readuntil(b"\n\n")))
            assert len(events) == 1
            assert 0 < await metric(client, "generation_tokens_total") - before < COUNT
            events += reader.feed(await output.read())
    reader.close()
    return events


async def test_curl_streams_completions(served: ServeProcess, reference: ReferenceModel) -> None:
    prompt = "🙂 🎉 🐈 🙂 🎉 🐈 🙂 🎉"
    wishes = GREEDY | USAGE | {"logprobs": 3, "return_tokens_as_token_ids": True}
    *events, done = await first_and_rest(served, "/v1/completions", {"prompt": prompt, **wishes})
    assert done.done
    assert len(events) == COUNT + 1
    answer = join_completion([event.json for event in events])
    choice, ids = answer.choice, reference.generate(reference.ids(prompt), COUNT)
    assert (choice.token_ids, choice.text, choice.finish_reason) == (ids, reference.text(ids), "length")
    assert choice.logprobs is not None
    assert choice.logprobs.top_logprobs is not None
    tops = [
        {int(name.removeprefix("token_id:")): value for name, value in (top or {}).items()}
        for top in choice.logprobs.top_logprobs
    ]
    assert [len(top) for top in tops] == [3] * COUNT
    values = [value for value in choice.logprobs.token_logprobs if value is not None]
    reference.check(reference.ids(prompt), ids, values, tops)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(reference.ids(prompt)), COUNT)


async def test_curl_streams_chat(served: ServeProcess, reference: ReferenceModel) -> None:
    messages = [{"role": "user", "content": "What is 2+2?"}]
    wishes = GREEDY | USAGE | {"logprobs": True, "top_logprobs": 3, "return_tokens_as_token_ids": True}
    *events, done = await first_and_rest(served, "/v1/chat/completions", {"messages": messages, **wishes})
    assert done.done
    assert len(events) == 1 + COUNT + 1
    answer = join_chat([event.json for event in events])
    prompt = reference.chat_ids(messages)
    choice, ids = answer.choice, reference.generate(prompt, COUNT)
    assert answer.prompt_token_ids == prompt
    assert (choice.token_ids, choice.text, choice.finish_reason) == (ids, reference.text(ids), "length")
    assert choice.logprobs is not None
    values = [entry.logprob for entry in choice.logprobs.content]
    tops = [
        {int(top.token.removeprefix("token_id:")): top.logprob for top in entry.top_logprobs}
        for entry in choice.logprobs.content
    ]
    assert [len(top) for top in tops] == [3] * COUNT
    reference.check(prompt, ids, values, tops)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), COUNT)
