"""Cases of text: characters, spaces and stop strings over token borders: laws 1, 2 and 4."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engines.scripted.script import Script
from tests.cases.answers import both_chats, both_completions
from tests.cases.loading import Case
from tests.cases.registry import covers
from tests.cases.stage import Stage
from tests.serving import LiveServer

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def groupings(count: int) -> list[list[int]]:
    """One token a frame, two, all at once, and uneven ones."""
    return [[], [2], [count], [1, 3], [3, 0, 1]]


@covers("TX-01")
async def characters_over_tokens(case: Case, stage: Stage) -> None:
    text = "👨‍👩‍👧 你好 добрый 🇳🇴 e\u0301 \u2028 ok"
    token_ids = stage.ids(text)
    assert stage.tokenizer.decode(token_ids) == text
    async with stage.serve() as live:
        for grouping in groupings(len(token_ids)):
            stage.say(Script(token_ids=[*token_ids, stage.eos], grouping=grouping))
            for choice in await both_chats(live, case.request.json):
                assert choice.text == text
            events = await live.client.events(case.request.path, case.request.json)
            assert not any("\ufffd" in (event["choices"][0]["delta"].get("content") or "") for event in events)
        # Where the ids end within a character, one U+FFFD stands for it, as in a full decode.
        stage.say(Script(token_ids=[*stage.ids("ok "), *stage.lone_bytes(0xF0, 0x9F)]))
        for choice in await both_chats(live, case.request.json | {"max_tokens": 4}):
            assert choice.text == "ok \ufffd"


@covers("TX-04")
async def leading_spaces(case: Case, stage: Stage) -> None:
    """On a byte-fallback tokenizer with metaspace, as Llama and Mistral have it."""
    directory = stage.scratch / "llama"
    write_llama_like(directory)
    llama = Stage(directory, stage.scratch, eos="</s>")
    pieces = ["▁Hello", "▁world", "▁", "▁", "x", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "▁Hello", "</s>"]
    token_ids = [llama.id_of(piece) for piece in pieces]
    async with llama.serve() as live:
        for grouping in groupings(len(token_ids)):
            llama.say(Script(token_ids=token_ids, grouping=grouping))
            for choice in await both_completions(live, case.request.json):
                assert choice.text == " Hello world  x🙂 Hello"
        echoed = await live.client.post(
            case.request.path, {"model": "m", "prompt": "Hello", "max_tokens": 1, "echo": True}
        )
        assert echoed.json["choices"][0]["text"] == "Hello Hello"


def write_llama_like(directory: Path) -> None:
    """A tiny tokenizer of Llama's kind: `▁` for spaces, bytes as `<0xNN>`, the decoder strips one leading space."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁Hello", "▁world", "x"]
    tokenizer = Tokenizer(
        models.BPE({piece: place for place, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in ("<s>", "</s>")])
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(described))


@covers("TX-05")
async def stop_strings_over_borders(case: Case, stage: Stage) -> None:
    texts = {
        "alpha beta gamma delta": ("alpha be", "stop", "ta gam"),
        "alpha\n\n\nQ: beta": ("alpha", "stop", "\n\n\nQ"),
        "ta ga\n\n\n\nQ tail": ("ta ga\n", "stop", "\n\n\nQ"),
        "a tata gate ta ga \n\n\n": ("a tata gate ta ga \n\n\n", "stop", None),
    }
    async with stage.serve() as live:
        for text, expected in texts.items():
            for grouping in groupings(len(stage.ids(text)) + 1):
                stage.say(stage.script(text, grouping=grouping))
                for choice in await both_chats(live, case.request.json):
                    assert (choice.text, choice.finish_reason, choice.stop_reason) == expected
    async with stage.serve(stepped=True) as live:
        await only_a_possible_stop_is_held(live, stage)


async def only_a_possible_stop_is_held(live: LiveServer, stage: Stage) -> None:
    """Step by step: what has come is the longest text that no continuation could turn into a stop string."""
    stop, token_ids = "ta gam", stage.ids("alpha beta ga")
    stage.say(Script(token_ids=[*token_ids, stage.eos]))
    sent = ""
    body = {"model": "m", "prompt": "x", "stop": [stop], "max_tokens": 40}
    async with stage.open_stream(live, "/v1/completions", body) as stream:
        for count in range(1, len(token_ids) + 1):
            if count > 1:
                stage.engine.step()
            event = await stream.next()
            sent += event["choices"][0]["text"]
            seen = stage.tokenizer.decode(token_ids[:count])
            held = max((size for size in range(len(stop)) if seen.endswith(stop[:size])), default=0)
            assert sent == seen[: len(seen) - held]
        stage.engine.step()
        (last,) = await stream.rest()
        assert sent + last["choices"][0]["text"] == stage.tokenizer.decode(token_ids)


@covers("TX-09")
async def constant_work(case: Case, stage: Stage) -> None:
    """A run of bytes that never become a character: each is given up at once, and the last cost what the first did."""
    (lone,) = stage.lone_bytes(0x80)
    count = 6000
    body = case.request.json | {"max_tokens": count, "logit_bias": {str(lone): 100}}
    async with stage.serve() as live:
        stage.say(Script(token_ids=[lone], cycle=True))
        marks = [time.process_time()]
        async with live.client.stream(case.request.path, body) as stream:
            arrived = 0
            while arrived < count:
                text = (await stream.next())["choices"][0]["text"]
                assert text == "\ufffd" * len(text)
                arrived += len(text)
                if arrived >= count * len(marks) // 4:
                    marks.append(time.process_time())
            assert await stream.rest() == []
    quarters = [end - start for start, end in itertools.pairwise(marks)]
    # Quadratic work would make the last quarter cost seven times the first.
    assert quarters[-1] < 3.5 * quarters[0], quarters


@covers("TX-10")
async def invalid_bytes(case: Case, stage: Stage) -> None:
    before, after = stage.ids("all good"), stage.ids(" and on")
    (lone,) = stage.lone_bytes(0x80)
    token_ids = [*before, lone, *after, stage.eos]
    body = CHAT | {"max_tokens": 50, "logprobs": True, "top_logprobs": 1}
    async with stage.serve() as live:
        for grouping in groupings(len(token_ids)):
            stage.say(Script(token_ids=token_ids, grouping=grouping))
            for choice in await both_chats(live, body):
                assert choice.text == "all good\ufffd and on"
                assert choice.finish_reason == "stop"
                assert choice.logprobs is not None
                entries = [bytes(entry.bytes or []) for entry in choice.logprobs.content]
                assert entries[len(before)] == b"\x80"
                assert b"".join(entries[:-1]) == b"all good\x80 and on"
        lead = list(itertools.chain(before, stage.lone_bytes(0xE2, 0x82), after))
        stage.say(Script(token_ids=[*lead, stage.eos]))
        for choice in await both_chats(live, body):
            assert choice.text == stage.tokenizer.decode(lead)
