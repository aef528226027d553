"""What the requests of OpenAI's completions and chat have in common, vLLM's extensions included."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from engines.errors import InvalidValue
from engines.protocol import LogprobParams, LogprobsMode
from processors.dialects.foreign_logprobs import LogprobFormat
from processors.dialects.openai import OpenAIOptions
from processors.request import GenerationRequest, SamplingWishes
from processors.text import TextParams
from routers.schemas.ignored import IgnoredFields
from routers.schemas.stops import Stops

_MOST_BIASES = 1024
MOST_SAMPLES = 128
_INT64 = 2**63
_LONGEST_ID = 128


class StreamOptions(IgnoredFields):
    """What streams carry besides choices."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class OpenAIRequest(IgnoredFields):
    """Fields of both routes. Types are strict: nothing is coerced.

    LOGPROBS_FIELD: the field that holds the number of alternatives.
    """

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "use_beam_search": (False,),
        "allowed_token_ids": ([],),
        "bad_words": ([],),
        "truncate_prompt_tokens": (),
        "structured_outputs": (),
        "response_format": ({"type": "text"},),
        "guided_json": (),
        "guided_regex": (),
        "guided_choice": (),
        "guided_grammar": (),
        "regex": (),
        "ebnf": (),
        "json_schema": (),
        "stop_regex": (),
        "lora_path": (),
        "return_hidden_states": (False,),
        "cache_salt": (),
        "timeout": (),
    }
    INFORMATIVE: ClassVar[frozenset[str]] = frozenset({
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "session_id", "length_penalty", "spaces_between_special_tokens",
    })  # fmt: skip

    LOGPROBS_FIELD: ClassVar[str] = "logprobs"

    model: str | None = None
    rid: Annotated[str, Field(max_length=_LONGEST_ID)] | None = None
    request_id: Annotated[str, Field(max_length=_LONGEST_ID)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=_INT64)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    stop: Stops = ()
    stop_token_ids: Annotated[list[int], Field(max_length=_MOST_BIASES)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    no_stop_trim: bool | None = None
    skip_special_tokens: bool | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=_MOST_BIASES)] | None
    ) = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    n: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] | None = None
    prompt_logprobs: Annotated[int, Field(ge=-1)] | None = None
    logprob_token_ids: Annotated[list[int], Field(max_length=_MOST_BIASES)] | None = None
    logprob_format: str | None = None
    logprobs_mode: str | None = None
    priority: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None

    @field_validator("logprobs_mode")
    @classmethod
    def _read_mode(cls, value: str | None) -> str | None:
        if value is not None and value not in list(LogprobsMode):
            raise ValueError(f"must be one of {', '.join(LogprobsMode)}")
        return value

    @field_validator("logprob_format")
    @classmethod
    def _read_format(cls, value: str | None) -> str | None:
        if value is not None and value not in list(LogprobFormat):
            raise ValueError(f"must be one of {', '.join(LogprobFormat)}")
        return value

    @field_validator("logit_bias")
    @classmethod
    def _read_bias(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        if value is not None and not all(key.isascii() and key.isdigit() and len(key) < 12 for key in value):
            raise ValueError("keys must be token ids")
        return value

    def ignored(self, *, strict: bool, prefix: str = "") -> list[str]:
        """Names of the sent fields that have no effect; refuses what can't be done, as IgnoredFields says."""
        unknown = super().ignored(strict=strict, prefix=prefix)
        if self.stream_options is not None and not self.stream:
            raise InvalidValue("stream_options is only allowed with stream.", param="stream_options")
        return unknown

    @property
    def token_limit(self) -> int | None:
        """max_tokens, None for the rest of the context."""
        return self.max_tokens

    @property
    def limit_field(self) -> str:
        """Name of the field that token_limit comes from."""
        return "max_tokens"

    def mode(self, default: LogprobsMode) -> LogprobsMode:
        """Raw or processed logprobs, by request or else by setting."""
        return default if self.logprobs_mode is None else LogprobsMode(self.logprobs_mode)

    def sampling(self) -> SamplingWishes:
        """The sampling part, neutral. A seed of -1 is none (vLLM), a top_k of -1 or 0 is off."""
        return SamplingWishes(
            max_tokens=self.token_limit,
            min_tokens=self.min_tokens or 0,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),
            min_p=self.min_p or 0.0,
            seed=None if self.seed == -1 else self.seed,
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            frequency_penalty=self.frequency_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            logit_bias={int(key): value for key, value in (self.logit_bias or {}).items()},
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
        )

    @property
    def samples(self) -> int:
        """Sequences to generate for each prompt."""
        return self.n or 1

    @abstractmethod
    def shown_logprobs(self) -> int | None:
        """Alternatives to show at each generated token; None without logprobs."""

    def shown_prompt_logprobs(self) -> int | None:
        """Alternatives to show at each token of the prompt; None without vLLM's block for it."""
        return self.prompt_logprobs

    def _alternatives_field(self, wishes: LogprobParams | None) -> str:
        """Name of the field that asks for the most alternatives."""
        asked = None if wishes is None else wishes.top_k
        if asked is not None and asked == self.prompt_logprobs and asked != self.shown_logprobs():
            return "prompt_logprobs"
        return self.LOGPROBS_FIELD

    def answer_options(self, default_mode: LogprobsMode) -> OpenAIOptions:
        """What the answer shall hold beside its choices. InvalidValue for what needs logprobs without them."""
        logprobs = self.shown_logprobs()
        if self.logprob_token_ids and logprobs is None:
            raise InvalidValue("logprob_token_ids needs logprobs.", param="logprob_token_ids")
        stream = self.stream_options or StreamOptions()
        return OpenAIOptions(
            include_usage=bool(stream.include_usage),
            continuous_usage=bool(stream.include_usage and stream.continuous_usage_stats),
            return_token_ids=bool(self.return_token_ids),
            tokens_as_token_ids=bool(self.return_tokens_as_token_ids),
            logprobs=logprobs,
            prompt_logprobs=self.shown_prompt_logprobs(),
            chosen=tuple(self.logprob_token_ids or ()),
            logprob_format=LogprobFormat(self.logprob_format or LogprobFormat.OPENAI),
            mode=self.mode(default_mode),
            samples=self.samples,
            shown_samples=self.n or 1,
        )

    def generation(self, logprobs: LogprobParams | None, request_id: str) -> GenerationRequest:
        """The neutral request, without its prompt."""
        return GenerationRequest(
            sampling=self.sampling(),
            text=TextParams(
                stop=self.stop,
                include_stop=bool(self.include_stop_str_in_output or self.no_stop_trim),
                skip_special_tokens=self.skip_special_tokens is not False,
                min_tokens=self.min_tokens or 0,
            ),
            logprobs=logprobs,
            renamed={"logprobs": self._alternatives_field(logprobs), "max_tokens": self.limit_field},
            stream=bool(self.stream),
            priority=self.priority or 0,
            names=tuple({request_id, *(name for name in (self.rid, self.request_id) if name)}),
        )
