import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from engines.errors import InvalidValue, UnsupportedFeature
from processors.request import ChatPrompt
from processors.tokenizer import TextTokenizer
from tests.processors import toy_tokenizers
from tests.processors.toy_tokenizers import FAMILY, hub, ids_of, text_tokenizer

LONG = "the 你好 🌟 " * 1000
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
TOKENIZER = text_tokenizer(toy_tokenizers.byte_level())


async def test_a_long_text_is_tokenized_as_a_short_one_and_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    encode = TOKENIZER._encode

    def noting(text: str, add_special_tokens: bool) -> list[int]:
        threads.append(threading.current_thread())
        return encode(text, add_special_tokens)

    monkeypatch.setattr(TOKENIZER, "_encode", noting)
    for text in (FAMILY, LONG):
        assert await TOKENIZER.encode(text) == ids_of(toy_tokenizers.byte_level(), text)
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()


async def test_requests_at_once_do_not_disturb_each_other() -> None:
    texts = [LONG, FAMILY, LONG * 2, "the"]
    found = await asyncio.gather(*(TOKENIZER.encode(text) for text in texts * 3))
    assert found == [ids_of(toy_tokenizers.byte_level(), text) for text in texts] * 3


def test_decode_keeps_special_tokens_unless_told() -> None:
    ids = TOKENIZER.backend.encode("<|im_start|>a").ids
    assert TOKENIZER.decode(ids) == "<|im_start|>a"
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == "a"


async def test_a_loaded_tokenizer_neither_truncates_nor_pads(tmp_path: Path) -> None:
    wrapped = hub(toy_tokenizers.byte_level())
    wrapped.backend_tokenizer.enable_truncation(4)
    wrapped.backend_tokenizer.enable_padding(length=64)
    wrapped.save_pretrained(tmp_path)
    wrapped.backend_tokenizer.no_truncation()
    wrapped.backend_tokenizer.no_padding()
    loaded = TextTokenizer.load(str(tmp_path))
    assert await loaded.encode("abcdefgh") == [*b"abcdefgh"]
    loaded.close()


def test_the_vocabulary_is_as_large_as_the_model_says(byte_level_dir: Path) -> None:
    loaded = TextTokenizer.load(str(byte_level_dir), 512)
    assert loaded.vocabulary.size == 512
    assert loaded.vocabulary.special == TOKENIZER.vocabulary.special
    loaded.close()


async def test_messages_are_rendered_by_the_models_template() -> None:
    assert await TOKENIZER.render_chat(ChatPrompt(messages=MESSAGES)) == "<|im_start|>hi<|im_end|><|im_start|>"
    bare = ChatPrompt(messages=MESSAGES, add_generation_prompt=False)
    assert await TOKENIZER.render_chat(bare) == "<|im_start|>hi<|im_end|>"


async def test_long_messages_are_rendered_all_the_same() -> None:
    prompt = ChatPrompt(messages=[{"role": "user", "content": LONG}])
    assert await TOKENIZER.render_chat(prompt) == f"<|im_start|>{LONG}<|im_end|><|im_start|>"


async def test_a_continued_message_stays_open() -> None:
    prompt = ChatPrompt(messages=MESSAGES, add_generation_prompt=False, continue_final_message=True)
    assert await TOKENIZER.render_chat(prompt) == "<|im_start|>hi"


@pytest.mark.parametrize(
    ("prompt", "inline"),
    [
        (ChatPrompt(messages=MESSAGES), True),
        (ChatPrompt(messages=[{"role": "user", "content": LONG}]), False),
        (ChatPrompt(messages=[{"role": "user", "content": ""}] * 1000), False),
        (ChatPrompt(messages=[{"role": "user", "content": "", "notes": ["x"] * 1000}]), False),
        (ChatPrompt(messages=MESSAGES, template_kwargs={"notes": ["x"] * 1000}), False),
    ],
    ids=["short", "long", "many", "member", "variable"],
)
async def test_law_9_only_short_conversations_are_rendered_on_the_loop(
    prompt: ChatPrompt, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    render = TOKENIZER._render

    def noting(prompt: ChatPrompt) -> str:
        threads.append(threading.current_thread())
        return render(prompt)

    monkeypatch.setattr(TOKENIZER, "_render", noting)
    assert await TOKENIZER.render_chat(prompt)
    assert [thread is threading.main_thread() for thread in threads] == [inline]


@pytest.mark.parametrize("place", ["member", "variable"])
async def test_law_10_a_conversation_nested_too_deeply_is_the_requests_fault(place: str) -> None:
    nested: Any = "x"
    for _ in range(1000):
        nested = [nested]
    tokenizer = text_tokenizer(
        toy_tokenizers.byte_level(), chat_template="{{ messages[0]['notes'] | tojson }}{{ notes | tojson }}"
    )
    prompt = (
        ChatPrompt(messages=[{"role": "user", "content": "hi", "notes": nested}])
        if place == "member"
        else ChatPrompt(messages=MESSAGES, template_kwargs={"notes": nested})
    )
    with pytest.raises(InvalidValue, match="refused the messages"):
        await tokenizer.render_chat(prompt)


async def test_the_templates_own_options_reach_it() -> None:
    tokenizer = text_tokenizer(toy_tokenizers.byte_level(), chat_template="{{ mood }}:{{ messages[0]['content'] }}")
    prompt = ChatPrompt(messages=MESSAGES, template_kwargs={"mood": "calm"})
    assert await tokenizer.render_chat(prompt) == "calm:hi"


async def test_law_10_a_model_without_a_template_refuses_messages() -> None:
    tokenizer = text_tokenizer(toy_tokenizers.byte_level(), chat_template=None)
    with pytest.raises(UnsupportedFeature) as refused:
        await tokenizer.render_chat(ChatPrompt(messages=MESSAGES))
    assert refused.value.param == "messages"


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0]['content'] + 1 }}",
        "{{ messages[0].content.missing.field }}",
        "{{ 1 / 0 }}",
        "{{ [].pop() }}",
        "{% for",
    ],
    ids=["refusal", "type", "undefined", "arithmetic", "index", "syntax"],
)
async def test_law_10_what_the_template_refuses_is_the_requests_fault(template: str) -> None:
    tokenizer = text_tokenizer(toy_tokenizers.byte_level(), chat_template=template)
    with pytest.raises(InvalidValue) as refused:
        await tokenizer.render_chat(ChatPrompt(messages=MESSAGES))
    assert refused.value.param == "messages"


async def test_law_10_an_option_that_is_ours_cannot_be_overridden() -> None:
    with pytest.raises(InvalidValue):
        await TOKENIZER.render_chat(ChatPrompt(messages=MESSAGES, template_kwargs={"tokenize": True}))
