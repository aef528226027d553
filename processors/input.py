"""Requests on their way down: prompt to token ids, every value checked, so that no engine sees what it can't take."""

import time
import uuid

import msgspec

from engines.errors import ContextLengthExceeded, InvalidValue, UnsupportedFeature
from engines.protocol import EngineInfo, EngineRequest, LogprobParams, SamplingParams
from processors.request import (
    ChatPrompt,
    GenerationRequest,
    PreparedRequest,
    SamplingWishes,
    TokenPrompt,
)
from processors.tokenizer import TextTokenizer


class InputProcessor:
    """Turns neutral requests into engine requests for one engine. `max_logprobs` caps alternatives a position."""

    def __init__(self, tokenizer: TextTokenizer, info: EngineInfo, *, max_logprobs: int = 20) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._max_logprobs = max_logprobs

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Check and tokenize.

        InvalidValue, UnsupportedFeature, ContextLengthExceeded name the field at fault.
        """
        arrival = time.monotonic()
        if request.logprobs is not None:
            self._check_logprobs(request.logprobs, request.logprobs_field)
        self._check_sampling(request.sampling, request.max_tokens_field)
        if request.priority and not self._info.capabilities.priority:
            raise UnsupportedFeature(f"Engine {self._info.engine_id} has no priorities.", param="priority")
        text, token_ids = await self._tokenize(request)
        if request.logprobs is not None:
            _check_prompt_start(request.logprobs, len(token_ids))
        sampling = self._sampling(request.sampling, len(token_ids))
        return PreparedRequest(
            engine_request=EngineRequest(
                id=uuid.uuid4().hex,
                prompt_token_ids=token_ids,
                sampling=sampling,
                logprobs=request.logprobs,
                priority=request.priority,
            ),
            text=request.text,
            stream=request.stream,
            arrival=arrival,
            prompt_text=text,
        )

    async def _tokenize(self, request: GenerationRequest) -> tuple[str | None, list[int]]:
        prompt = request.prompt
        if isinstance(prompt, TokenPrompt):
            self.check_token_ids(prompt.token_ids, prompt.field)
            self._check_length(len(prompt.token_ids), prompt.field)
            return None, prompt.token_ids
        if isinstance(prompt, ChatPrompt):
            text = await self._tokenizer.render_chat(prompt)
            token_ids = await self.encode(text, add_special_tokens=False, field=prompt.field)
        else:
            text = prompt.text
            token_ids = await self.encode(text, add_special_tokens=prompt.add_special_tokens)
        self._check_length(len(token_ids), prompt.field)
        return text, token_ids

    async def encode(self, text: str, *, add_special_tokens: bool, field: str = "prompt") -> list[int]:
        """Token ids of a prompt. A text that can't fit the context is refused before it is tokenized."""
        vocabulary = self._tokenizer.vocabulary
        if vocabulary.exact:
            at_least = len(text) // vocabulary.longest_token
            if at_least > self._info.max_model_len:
                raise self._too_long(f"at least {at_least}", field)
        return await self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def check_token_ids(self, token_ids: list[int], param: str) -> None:
        """InvalidValue unless all ids lie in the model's vocabulary."""
        if token_ids and (min(token_ids) < 0 or max(token_ids) >= self._info.vocab_size):
            wrong = next(token_id for token_id in token_ids if not 0 <= token_id < self._info.vocab_size)
            raise InvalidValue(
                f"Token id {wrong} is outside the vocabulary of {self._info.vocab_size} ids.", param=param
            )

    def _check_length(self, prompt_tokens: int, field: str) -> None:
        if prompt_tokens == 0:
            raise InvalidValue("The prompt must not be empty.", param=field)
        if prompt_tokens >= self._info.max_model_len:
            raise self._too_long(str(prompt_tokens), field)

    def _too_long(self, tokens: str, field: str) -> ContextLengthExceeded:
        return ContextLengthExceeded(
            f"This model's maximum context length is {self._info.max_model_len} tokens, of which at least one must be "
            f"left for the answer. The prompt has {tokens} tokens. Please shorten it.",
            param=field,
        )

    def _check_logprobs(self, wishes: LogprobParams, field: str) -> None:
        capabilities = self._info.capabilities
        engine = f"Engine {self._info.engine_id}"
        if not capabilities.token_logprobs:
            raise UnsupportedFeature(f"{engine} gives no logprobs.", param="logprobs")
        limits = [self._max_logprobs, self._info.vocab_size]
        if capabilities.max_top_logprobs is not None:
            limits.append(capabilities.max_top_logprobs)
        limit = min(limits)
        if not 0 <= wishes.top_k <= limit:
            raise InvalidValue(
                f"{wishes.top_k} logprobs a position were asked for, 0 to {limit} are allowed.", param=field
            )
        if wishes.token_ids and not capabilities.chosen_logprobs:
            raise UnsupportedFeature(f"{engine} gives no logprobs of chosen ids.", param="logprob_token_ids")
        self.check_token_ids(list(wishes.token_ids), "logprob_token_ids")
        if wishes.prompt_start is not None and not capabilities.prompt_logprobs:
            raise UnsupportedFeature(f"{engine} gives no prompt logprobs.", param="prompt_logprobs")
        if wishes.mode not in capabilities.logprobs_modes:
            raise UnsupportedFeature(f"{engine} does not give {wishes.mode.value}.", param="logprobs_mode")

    def _check_sampling(self, wishes: SamplingWishes, max_tokens_field: str) -> None:
        self.check_token_ids(list(wishes.logit_bias), "logit_bias")
        self.check_token_ids(list(wishes.stop_token_ids), "stop_token_ids")
        if wishes.max_tokens is not None and wishes.max_tokens > self._info.max_model_len:
            raise InvalidValue(
                f"{max_tokens_field} is {wishes.max_tokens}, more than the model's context of "
                f"{self._info.max_model_len}.",
                param=max_tokens_field,
            )
        if wishes.max_tokens is not None and wishes.min_tokens > wishes.max_tokens:
            raise InvalidValue(
                f"min_tokens is {wishes.min_tokens}, more than {max_tokens_field}, {wishes.max_tokens}.",
                param="min_tokens",
            )

    def _sampling(self, wishes: SamplingWishes, prompt_tokens: int) -> SamplingParams:
        """Bound max_tokens by the context and check the engine for every option that is not neutral."""
        room = self._info.max_model_len - prompt_tokens
        if wishes.min_tokens > room:
            raise ContextLengthExceeded(
                f"min_tokens is {wishes.min_tokens}, but the prompt of {prompt_tokens} tokens leaves {room} in "
                f"the model's context of {self._info.max_model_len}.",
                param="min_tokens",
            )
        values = msgspec.structs.asdict(wishes)
        values["max_tokens"] = room if wishes.max_tokens is None else min(wishes.max_tokens, room)
        sampling = SamplingParams(**values)
        neutral = SamplingParams(max_tokens=sampling.max_tokens)
        for name in sampling.__struct_fields__:
            if getattr(sampling, name) != getattr(neutral, name) and name not in self._info.capabilities.sampling:
                raise UnsupportedFeature(f"Engine {self._info.engine_id} can't do {name}.", param=name)
        return sampling


def _check_prompt_start(wishes: LogprobParams, prompt_tokens: int) -> None:
    start = wishes.prompt_start
    if start is not None and not 0 <= start <= prompt_tokens:
        raise InvalidValue(
            f"Prompt logprobs were asked for from position {start} of a prompt of {prompt_tokens} tokens.",
            param="prompt_logprobs",
        )
