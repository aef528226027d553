"""From the name or URL of `--engine` to an engine."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlsplit

from app.settings import InvalidSettings, Settings, flag_of
from engines.errors import EngineUnavailable
from engines.local.options import LocalEngineOptions
from engines.protocol import EngineClient
from engines.scripted.options import ScriptedOptions

log = logging.getLogger("tailrace.engine")

SCRIPTED_TEXT = " The quick brown fox jumps over the lazy dog. Ein Kätzchen schläft 🐈."


def choose_engine(settings: Settings) -> Callable[[], EngineClient]:
    """Find the maker of the engine that the settings name; it may take seconds, so call it off the loop.

    InvalidSettings for one that doesn't exist, and for more than one.
    """
    flag = flag_of("engine")
    if len(settings.engine) > 1:
        raise InvalidSettings(f"{flag}: several engines at once ({', '.join(settings.engine)}) don't work yet")
    name = settings.engine[0]
    if name in ENGINES:
        return partial(ENGINES[name], settings)
    scheme = urlsplit(name).scheme
    what = f"no engine is reached by {scheme}:// yet" if scheme else f"there is no engine {name!r}"
    raise InvalidSettings(f"{flag}: {what}; there are {' and '.join(ENGINES)}")


def make_local(settings: Settings) -> EngineClient:
    """The embedded engine, in a process of its own."""
    from engines.local.client import LocalEngine

    return LocalEngine(local_options(settings), on_progress=log.info)


def local_options(settings: Settings) -> LocalEngineOptions:
    """What the settings say to the embedded engine."""
    return LocalEngineOptions(
        model=settings.model,
        dtype=settings.dtype,
        device=settings.device,
        max_model_len=settings.max_model_len,
        slots=settings.max_running,
        queue_limit=settings.max_waiting,
        prefix_cache_tokens=settings.prefix_cache_tokens,
    )


def make_scripted(settings: Settings) -> EngineClient:
    """The scripted engine, with tokenizer and vocabulary of the model; it says one text over and over.

    EngineUnavailable if there is no such model, or no such file of scripts.
    """
    from tokenizers import Tokenizer
    from transformers import AutoConfig

    from engines.local.load_error import ModelLoadError
    from engines.local.model_directory import find_directory
    from engines.scripted.engine import ScriptedEngine

    try:
        directory, name = find_directory(settings.model, log.info)
    except ModelLoadError as error:
        raise EngineUnavailable(str(error)) from error
    config = AutoConfig.from_pretrained(directory)
    eos = config.eos_token_id
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    options = ScriptedOptions(
        model=name,
        tokenizer=str(directory),
        max_model_len=settings.max_model_len or config.max_position_embeddings,
        vocab_size=config.vocab_size,
        eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
        step_ms=settings.scripted_step_ms,
        max_running=settings.max_running,
        queue_limit=settings.max_waiting,
        text_ids=tokenizer.encode(SCRIPTED_TEXT, add_special_tokens=False).ids,
        script_file=settings.scripted_file,
    )
    try:
        return ScriptedEngine(options)
    except ValueError as error:
        raise EngineUnavailable(f"{flag_of('scripted_file')}: {error}") from error


ENGINES: Mapping[str, Callable[[Settings], EngineClient]] = {"local": make_local, "scripted": make_scripted}
