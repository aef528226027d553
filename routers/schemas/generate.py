"""The request of SGLang's `/generate`."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from engines.errors import InvalidValue, UnsupportedFeature
from engines.protocol import LogprobParams, LogprobsMode
from processors.dialects.foreign_logprobs import LogprobFormat
from processors.request import GenerationRequest, Prompt, SamplingWishes, TextPrompt, TokenPrompt
from processors.text import TextParams
from routers.schemas.ignored import IgnoredFields
from routers.schemas.stops import Stops

_DEFAULT_MAX_TOKENS = 128
_INT64 = 2**63
_MOST_IDS = 1024
_MOST_SAMPLES = 128
_MOST_SEQUENCES = 1024
_GREEDY_BELOW = 1e-6

# Where SGLang's names differ from vLLM's, and where the others are.
_NAMES = {name: f"sampling_params.{name}" for name in ("stop", *SamplingWishes.__struct_fields__)} | {
    "max_tokens": "sampling_params.max_new_tokens",
    "min_tokens": "sampling_params.min_new_tokens",
    "seed": "sampling_params.sampling_seed",
    "logprobs": "top_logprobs_num",
    "logprob_token_ids": "token_ids_logprob",
    "prompt_logprobs": "logprob_start_len",
}

Rid = Annotated[str, Field(min_length=1, max_length=128)]
Ids = Annotated[list[int], Field(max_length=_MOST_IDS)]


class GenerateSampling(IgnoredFields):
    """SGLang's sampling_params. max_new_tokens null is the rest of the context."""

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "json_schema": (),
        "regex": (),
        "ebnf": (),
        "structural_tag": (),
        "stop_regex": ([],),
        "beam_width": (1,),
        "custom_params": ({},),
    }
    INFORMATIVE: ClassVar[frozenset[str]] = frozenset({"spaces_between_special_tokens"})

    max_new_tokens: Annotated[int, Field(ge=0)] | None = _DEFAULT_MAX_TOKENS
    min_new_tokens: Annotated[int, Field(ge=0)] = 0
    stop: Stops = ()
    stop_token_ids: Ids | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1, lt=_INT64)] = -1
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] = 1.0
    n: Annotated[int, Field(ge=1, le=_MOST_SAMPLES)] = 1
    ignore_eos: bool = False
    no_stop_trim: bool = False
    skip_special_tokens: bool = True
    logit_bias: Annotated[dict[str, float], Field(max_length=_MOST_IDS)] | None = None
    sampling_seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None

    def check(self) -> None:
        """UnsupportedFeature or, for an unknown key, InvalidValue: SGLang refuses these too."""
        for name, value in (self.model_extra or {}).items():
            field = f"sampling_params.{name[:64]}"
            if name in self.INFORMATIVE:
                continue
            if name not in self.UNSUPPORTED:
                raise InvalidValue(f"There is no sampling parameter {name[:64]!r}.", param=field)
            if value is not None and value not in self.UNSUPPORTED[name]:
                raise UnsupportedFeature(f"{name} is not supported with this value.", param=field)
        for key, value in (self.logit_bias or {}).items():
            if not (key.isascii() and key.isdigit() and len(key) < 12 and abs(value) <= 100):
                raise InvalidValue("Biases are -100 to 100 by token id.", param="sampling_params.logit_bias")

    def wishes(self) -> SamplingWishes:
        """The neutral form. A temperature under 1e-6 is greedy, as in SGLang."""
        return SamplingWishes(
            max_tokens=self.max_new_tokens,
            min_tokens=self.min_new_tokens,
            temperature=0.0 if self.temperature < _GREEDY_BELOW else self.temperature,
            top_p=self.top_p,
            top_k=max(self.top_k, 0),
            min_p=self.min_p,
            seed=self.sampling_seed,
            repetition_penalty=self.repetition_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            logit_bias={int(key): value for key, value in (self.logit_bias or {}).items()},
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=self.ignore_eos,
        )

    def text(self) -> TextParams:
        """How the text is cut."""
        return TextParams(
            stop=self.stop,
            include_stop=self.no_stop_trim,
            skip_special_tokens=self.skip_special_tokens,
            min_tokens=self.min_new_tokens,
        )


class GenerateRequest(IgnoredFields):
    """One prompt or a batch. Options marked per prompt may be lists as long as the batch.

    logprob_start_len -1 is the output only; k is the prompt from position k on.
    """

    UNSUPPORTED: ClassVar[dict[str, tuple[Any, ...]]] = {
        "input_embeds": (),
        "image_data": ([],),
        "video_data": ([],),
        "audio_data": ([],),
        "lora_path": (),
        "session_params": (),
        "custom_logit_processor": (),
        "return_routed_experts": (False,),
        "return_prompt_token_ids": (False,),
        "return_entropy": (False,),
        "return_sampling_mask": (False,),
        "return_flat_raw_top_logprobs": (False,),
        "bootstrap_host": (),
        "bootstrap_port": (),
        "bootstrap_room": (),
        "background": (False,),
        "cache_salt": (),
    }
    INFORMATIVE: ClassVar[frozenset[str]] = frozenset({
        "log_metrics", "no_logs", "custom_labels", "extra_key", "session_id", "routed_dp_rank", "model",
    })  # fmt: skip

    text: str | list[str] | None = None
    input_ids: list[int] | list[list[int]] | None = None
    sampling_params: GenerateSampling | list[GenerateSampling] | None = None
    rid: Rid | list[Rid] | None = None
    return_logprob: bool | list[bool] = False
    logprob_start_len: int | list[int] | None = None
    top_logprobs_num: int | list[int] | None = None
    token_ids_logprob: Ids | list[Ids | None] | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False
    incremental: bool | None = None
    return_hidden_states: bool = False
    logprob_format: LogprobFormat | None = Field(default=None, strict=False)
    logprobs_mode: LogprobsMode | None = Field(default=None, strict=False)
    sampling_logprobs_mode: LogprobsMode | None = Field(default=None, strict=False)
    priority: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None

    @property
    def batched(self) -> bool:
        """Whether the prompts came as a list of prompts: then the answer is one, too."""
        if self.input_ids is not None:
            return bool(self.input_ids) and isinstance(self.input_ids[0], list)
        return isinstance(self.text, list)

    def read_prompts(self) -> list[Prompt]:
        """The prompts. InvalidValue unless exactly one of text and input_ids is there, and not empty."""
        if (self.text is None) == (self.input_ids is None):
            raise InvalidValue("Give either text or input_ids.", param="text")
        if self.text is not None:
            texts = self.text if isinstance(self.text, list) else [self.text]
            if not texts or not all(texts):
                raise InvalidValue("The prompt must not be empty.", param="text")
            return [TextPrompt(text) for text in texts]
        lists: list[Any] = list(self.input_ids or []) if self.batched else [self.input_ids]
        if not all(lists):
            raise InvalidValue("The prompt must not be empty.", param="input_ids")
        return [TokenPrompt(token_ids) for token_ids in lists]

    def samplings(self, count: int) -> list[GenerateSampling]:
        """Sampling for each of `count` prompts. InvalidValue for a list of another length, or samples that differ."""
        given = self.sampling_params or GenerateSampling()
        each = self._spread(given, count, "sampling_params")
        for sampling in each:
            sampling.check()
        if len({sampling.n for sampling in each}) > 1:
            raise InvalidValue("n must be the same for all prompts.", param="sampling_params.n")
        if count * each[0].n > _MOST_SEQUENCES:
            raise InvalidValue(
                f"{count} prompts with {each[0].n} samples each are more than {_MOST_SEQUENCES} sequences.",
                param="sampling_params.n",
            )
        return each

    def logprobs(self, count: int, default_mode: LogprobsMode) -> list[LogprobParams | None]:
        """Logprob wishes of each of `count` prompts."""
        wanted = self._spread(self.return_logprob, count, "return_logprob")
        starts = self._spread(self.logprob_start_len, count, "logprob_start_len")
        tops = self._spread(self.top_logprobs_num, count, "top_logprobs_num")
        if self.token_ids_logprob and not isinstance(self.token_ids_logprob[0], int):
            chosen = self._spread(self.token_ids_logprob, count, "token_ids_logprob")
        else:
            chosen = [self.token_ids_logprob] * count
        mode = self.logprobs_mode or self.sampling_logprobs_mode or default_mode
        wishes: list[LogprobParams | None] = []
        for want, start, top_k, ids in zip(wanted, starts, tops, chosen, strict=True):
            if start is not None and start < -1:
                raise InvalidValue("logprob_start_len must be -1 or more.", param="logprob_start_len")
            prompt_start = None if start is None or start == -1 else start
            wish = LogprobParams(top_k=top_k or 0, token_ids=tuple(ids or ()), prompt_start=prompt_start, mode=mode)
            wishes.append(wish if want else None)
        return wishes

    def rids(self, count: int, default: str) -> list[str]:
        """The client's id of each of `count` prompts; one id for a batch is told apart by a number, as in SGLang."""
        if isinstance(self.rid, list):
            return self._spread(self.rid, count, "rid")
        base = self.rid or default
        return [f"{base}_{number}" for number in range(count)] if self.batched else [base]

    def generation(self, sampling: GenerateSampling, logprobs: LogprobParams | None) -> GenerationRequest:
        """The neutral request, without its prompt and names."""
        return GenerationRequest(
            sampling=sampling.wishes(),
            text=sampling.text(),
            logprobs=logprobs,
            renamed=_NAMES | {"prompt": "text" if self.input_ids is None else "input_ids"},
            stream=self.stream,
            priority=self.priority or 0,
            return_hidden_states=self.return_hidden_states,
        )

    def _spread(self, value: Any, count: int, field: str) -> list[Any]:
        if not isinstance(value, list):
            return [value] * count
        if not self.batched or len(value) != count:
            raise InvalidValue(f"{field} has {len(value)} members for {count} prompts.", param=field)
        return value
