"""Every option of the server, written once.

A field's name, default, bounds and help make its flag and its environment variable: `max_model_len` is
`--max-model-len` and `TAILRACE_MAX_MODEL_LEN`. A flag wins over the environment, the environment over the default.
"""

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import ByteSize, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, CliApp, CliSettingsSource, NoDecode, SettingsConfigDict, SettingsError

from engines.local.options import LocalEngineOptions
from processors.limits import Limits

ENV_PREFIX = "TAILRACE_"


Dtype = Literal["auto", "bfloat16", "float32"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogprobsModeName = Literal["raw_logprobs", "processed_logprobs"]


class Size(ByteSize):
    """Bytes, read from 33554432, 32MiB or 1GB alike and shown in the largest whole binary unit."""

    def __str__(self) -> str:
        for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if self and self % unit == 0:
                return f"{self // unit}{name}"
        return str(int(self))


class Names(list[str]):
    """A list shown as it is given: a,b."""

    def __str__(self) -> str:
        return ",".join(self)


class InvalidSettings(Exception):
    """An option that doesn't exist or has a bad value; the message is one line and names it."""


class Settings(BaseSettings):
    """Serve a model over HTTP."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        cli_kebab_case="no_enums",
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_exit_on_error=False,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        frozen=True,
    )

    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 is every interface."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Directory, GGUF file or hub name of the model; the small default if unset.",
    )
    served_model_name: str | None = Field(
        default=None, min_length=1, description="Name that clients call the model by; its own name if unset."
    )
    engine: Annotated[list[str], NoDecode] = Field(
        default=Names(["local"]),
        min_length=1,
        description="Where tokens come from: local, scripted, or the URL of an engine. May be repeated.",
    )
    dtype: Dtype = Field(default="auto", description="Number format of the weights.")
    max_model_len: int | None = Field(
        default=None, ge=1, description="Longest sequence in tokens, prompt and output; the model's own limit if unset."
    )
    device: str = Field(
        default="auto", min_length=1, description="Where the embedded engine computes: auto, cpu, cuda, cuda:1."
    )
    max_running: int = Field(
        default=LocalEngineOptions().slots, ge=1, description="Requests that the engine started here works on at once."
    )
    max_waiting: int = Field(
        default=LocalEngineOptions().queue_limit,
        ge=0,
        description="Requests that may wait in it; over that the answer is 503.",
    )
    prefix_cache_tokens: int = Field(
        default=LocalEngineOptions().prefix_cache_tokens,
        ge=0,
        description="Tokens of ended requests whose keys and values it keeps for prompts that begin alike; 0 is none.",
    )
    scripted_step_ms: float = Field(
        default=20.0, ge=0, description="Milliseconds between two steps of the scripted engine."
    )
    scripted_file: str | None = Field(
        default=None,
        min_length=1,
        description="JSON file of scripts for the scripted engine; one text over and over if unset.",
    )
    max_logprobs: int = Field(
        default=Limits().max_logprobs,
        ge=-1,
        description="Most alternatives per token that a request may ask for; -1 is the whole vocabulary.",
    )
    max_logprob_entries: int = Field(
        default=Limits().max_logprob_entries,
        ge=1,
        description="Most logprob values of one sequence: positions times values a position.",
    )
    max_scoring_requests: int = Field(
        default=Limits().max_scoring_requests,
        ge=1,
        description="Requests at once that may want logprobs of their prompts; over that the answer is 429.",
    )
    skip_tokenizer_init: bool = Field(
        default=False, description="Raw-token mode: no tokenizer, /generate takes and gives token ids only."
    )
    incremental_streaming_output: bool = Field(
        default=False, description="Streams of /generate bring what is new instead of all that came so far."
    )
    logprobs_mode: LogprobsModeName = Field(
        default="raw_logprobs",
        description="Distribution that logprobs describe: the model's own, or the one sampled from.",
    )
    strict: bool = Field(
        default=False, description="Refuse requests with unknown fields instead of naming these in a header."
    )
    api_key: SecretStr | None = Field(
        default=None, min_length=1, description="Key that clients must send as a bearer token; open if unset."
    )
    max_body: Size = Field(default=Size(32 * 2**20), gt=0, description="Largest request body.")
    send_timeout: float = Field(
        default=30.0, gt=0, description="Seconds that a client may take no data before its request is aborted."
    )
    ping_interval: float = Field(
        default=15.0, ge=0, description="Seconds of silence before a comment is sent; 0 is never."
    )
    drain_timeout: float = Field(
        default=30.0, ge=0, description="Seconds that running requests have to finish after SIGTERM."
    )
    timeout_keep_alive: int = Field(default=120, ge=1, description="Seconds after which an idle connection is closed.")
    latency_buckets: Annotated[list[float] | None, NoDecode] = Field(
        default=None,
        description="Bucket edges in seconds, as 0.01,0.1,1, in place of those of every latency histogram.",
    )
    log_format: LogFormat = Field(default="text", description="How log lines look.")
    log_level: LogLevel = Field(default="info", description="Least severe level that is logged.")

    @field_validator("engine", "latency_buckets", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @field_validator("engine")
    @classmethod
    def _engines_are_named(cls, value: list[str]) -> list[str]:
        if not all(value):
            raise ValueError("an engine's name is empty")
        return Names(value)

    @field_validator("latency_buckets")
    @classmethod
    def _edges_rise(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and (not value or value[0] <= 0 or any(low >= high for low, high in pairwise(value))):
            raise ValueError("edges must be positive and rise")
        return value

    @classmethod
    def from_command_line(cls, arguments: list[str], *, program: str = "tailrace serve") -> Self:
        """Read flags and the environment. InvalidSettings for a bad one; --help prints and exits."""
        try:
            source: CliSettingsSource[Any] = CliSettingsSource(cls, cli_prog_name=program)
            return CliApp.run(cls, cli_args=arguments, cli_settings_source=source)
        except ValidationError as error:
            raise InvalidSettings("; ".join(_describe(fault) for fault in error.errors())) from None
        except SettingsError as error:
            raise InvalidSettings(" ".join(str(error).removeprefix("error parsing CLI: ").split())) from None


def flag_of(field: str) -> str:
    """Name of a field's flag."""
    return "--" + field.replace("_", "-")


def variable_of(field: str) -> str:
    """Name of a field's environment variable."""
    return ENV_PREFIX + field.upper()


def _describe(fault: Any) -> str:
    field = str(fault["loc"][0])
    # pydantic counts items and characters; every shortest length here is one.
    what = "must not be empty" if fault["type"] in ("too_short", "string_too_short") else fault["msg"]
    return f"{flag_of(field)} ({variable_of(field)}): {what}"
