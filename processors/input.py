"""Requests on their way down: prompt to token ids, every value checked, so that no engine sees what it can't take."""

import asyncio
import time
import uuid
from collections.abc import Sequence

import msgspec

from engines.errors import ContextLengthExceeded, InvalidValue, UnsupportedFeature
from engines.protocol import EngineInfo, EngineRequest, LogprobParams, SamplingParams
from processors.fanout import samples_of
from processors.limits import WHOLE_VOCABULARY, Limits
from processors.request import (
    ChatPrompt,
    GenerationRequest,
    PreparedRequest,
    Prompt,
    TokenPrompt,
)
from processors.tokenizer import TextTokenizer

_PROMPTS_A_TURN = 16


class InputProcessor:
    """Turns neutral requests into engine requests for one engine. Without a tokenizer prompts must be token ids."""

    def __init__(self, tokenizer: TextTokenizer | None, info: EngineInfo, limits: Limits | None = None) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._limits = limits or Limits()

    def _texts(self, field: str) -> TextTokenizer:
        if self._tokenizer is None:
            raise UnsupportedFeature("The server runs without a tokenizer; send token ids.", param=field)
        return self._tokenizer

    async def prepare_all(
        self, request: GenerationRequest, prompts: Sequence[Prompt], samples: int
    ) -> list[PreparedRequest]:
        """Prepare the request for each prompt, `samples` times: in the order prompt x samples + sample."""
        prepared: list[PreparedRequest] = []
        for number, prompt in enumerate(prompts):
            if number % _PROMPTS_A_TURN == _PROMPTS_A_TURN - 1:
                await asyncio.sleep(0)
            prepared += samples_of(await self.prepare(msgspec.structs.replace(request, prompt=prompt)), samples)
        return prepared

    async def prepare(self, request: GenerationRequest) -> PreparedRequest:
        """Check and tokenize.

        InvalidValue, UnsupportedFeature, ContextLengthExceeded name the field at fault.
        """
        arrival = time.monotonic()
        wishes = request.logprobs
        if wishes is not None:
            if wishes.top_k == WHOLE_VOCABULARY and self._limits.max_logprobs == WHOLE_VOCABULARY:
                wishes = msgspec.structs.replace(wishes, top_k=self._info.vocab_size)
            self._check_logprobs(wishes, request)
        self._check_sampling(request)
        if request.priority and not self._info.capabilities.priority:
            raise UnsupportedFeature(f"Engine {self._info.engine_id} has no priorities.", param="priority")
        if self._tokenizer is None and request.text.stop:
            raise UnsupportedFeature(
                "The server runs without a tokenizer: there is no text to stop at.", param=request.called("stop")
            )
        text, token_ids = await self._tokenize(request)
        sampling = self._sampling(request, len(token_ids))
        if wishes is not None:
            self._check_entries(wishes, len(token_ids), sampling.max_tokens, request)
        return PreparedRequest(
            engine_request=EngineRequest(
                id=uuid.uuid4().hex,
                prompt_token_ids=token_ids,
                sampling=sampling,
                logprobs=wishes,
                priority=request.priority,
                return_hidden_states=request.return_hidden_states,
            ),
            text=request.text,
            stream=request.stream,
            arrival=arrival,
            prompt_text=text,
            names=request.names,
        )

    async def _tokenize(self, request: GenerationRequest) -> tuple[str | None, list[int]]:
        prompt = request.prompt
        field = request.called(prompt.field)
        if isinstance(prompt, TokenPrompt):
            self.check_token_ids(prompt.token_ids, field)
            self._check_length(len(prompt.token_ids), request)
            return None, prompt.token_ids
        if isinstance(prompt, ChatPrompt):
            text = await self._texts(field).render_chat(prompt)
            token_ids = await self.encode(text, add_special_tokens=False, field=field)
        else:
            text = prompt.text
            token_ids = await self.encode(text, add_special_tokens=prompt.add_special_tokens, field=field)
        self._check_length(len(token_ids), request)
        return text, token_ids

    async def encode(self, text: str, *, add_special_tokens: bool, field: str = "prompt") -> list[int]:
        """Token ids of a prompt. A text that can't fit the context is refused before it is tokenized."""
        tokenizer = self._texts(field)
        vocabulary = tokenizer.vocabulary
        if vocabulary.exact:
            at_least = len(text) // vocabulary.longest_token
            if at_least > self._info.max_model_len:
                raise self._too_long(f"at least {at_least}", field)
        return await tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def check_token_ids(self, token_ids: list[int], param: str) -> None:
        """InvalidValue unless all ids lie in the model's vocabulary."""
        if token_ids and (min(token_ids) < 0 or max(token_ids) >= self._info.vocab_size):
            wrong = next(token_id for token_id in token_ids if not 0 <= token_id < self._info.vocab_size)
            raise InvalidValue(
                f"Token id {wrong} is outside the vocabulary of {self._info.vocab_size} ids.", param=param
            )

    def _check_length(self, prompt_tokens: int, request: GenerationRequest) -> None:
        """Hold the prompt against the context; where nothing is generated, it may fill it."""
        if prompt_tokens == 0:
            raise InvalidValue("The prompt must not be empty.", param=request.called(request.prompt.field))
        at_least = 0 if request.sampling.max_tokens == 0 else 1
        if prompt_tokens + at_least > self._info.max_model_len:
            raise self._too_long(str(prompt_tokens), request.called(request.prompt.field))

    def _too_long(self, tokens: str, field: str) -> ContextLengthExceeded:
        return ContextLengthExceeded(
            f"This model's maximum context length is {self._info.max_model_len} tokens, of which one must be left for "
            f"the answer unless none is asked for. The prompt has {tokens} tokens. Please shorten it.",
            param=field,
        )

    def _check_logprobs(self, wishes: LogprobParams, request: GenerationRequest) -> None:
        capabilities = self._info.capabilities
        engine = f"Engine {self._info.engine_id}"
        if not capabilities.token_logprobs:
            raise UnsupportedFeature(f"{engine} gives no logprobs.", param="logprobs")
        limits = [self._info.vocab_size]
        if self._limits.max_logprobs != WHOLE_VOCABULARY:
            limits.append(self._limits.max_logprobs)
        if capabilities.max_top_logprobs is not None:
            limits.append(capabilities.max_top_logprobs)
        limit = min(limits)
        if not 0 <= wishes.top_k <= limit:
            raise InvalidValue(
                f"{wishes.top_k} logprobs a position were asked for, 0 to {limit} are allowed.",
                param=request.called("logprobs"),
            )
        chosen = request.called("logprob_token_ids")
        if wishes.token_ids and not capabilities.chosen_logprobs:
            raise UnsupportedFeature(f"{engine} gives no logprobs of chosen ids.", param=chosen)
        self.check_token_ids(list(wishes.token_ids), chosen)
        if len(set(wishes.token_ids)) != len(wishes.token_ids):
            raise InvalidValue("An id was asked for twice.", param=chosen)
        if wishes.prompt_start is not None and not capabilities.prompt_logprobs:
            raise UnsupportedFeature(f"{engine} gives no prompt logprobs.", param=request.called("prompt_logprobs"))
        if wishes.mode not in capabilities.logprobs_modes:
            raise UnsupportedFeature(f"{engine} does not give {wishes.mode.value}.", param="logprobs_mode")

    def _check_entries(
        self, wishes: LogprobParams, prompt_tokens: int, max_tokens: int, request: GenerationRequest
    ) -> None:
        """Hold positions and values a position against each other: their product is what an answer may weigh."""
        start = prompt_tokens if wishes.prompt_start is None else wishes.prompt_start
        if not 0 <= start <= prompt_tokens:
            raise InvalidValue(
                f"Prompt logprobs were asked for from position {start} of a prompt of {prompt_tokens} tokens.",
                param=request.called("prompt_logprobs"),
            )
        positions = prompt_tokens - start + max_tokens
        entries = positions * (1 + wishes.top_k + len(wishes.token_ids))
        if entries > self._limits.max_logprob_entries:
            raise InvalidValue(
                f"Logprobs of {positions} positions with {wishes.top_k + len(wishes.token_ids)} alternatives each are "
                f"{entries} values; at most {self._limits.max_logprob_entries} are allowed (--max-logprob-entries). "
                "Ask for fewer alternatives or a smaller max_tokens.",
                param=request.called("logprobs"),
            )

    def _check_sampling(self, request: GenerationRequest) -> None:
        wishes = request.sampling
        self.check_token_ids(list(wishes.logit_bias), request.called("logit_bias"))
        self.check_token_ids(list(wishes.stop_token_ids), request.called("stop_token_ids"))
        most, least = request.called("max_tokens"), request.called("min_tokens")
        if wishes.max_tokens is not None and wishes.max_tokens > self._info.max_model_len:
            raise InvalidValue(
                f"{most} is {wishes.max_tokens}, more than the model's context of {self._info.max_model_len}.",
                param=most,
            )
        if wishes.max_tokens is not None and wishes.min_tokens > wishes.max_tokens:
            raise InvalidValue(f"{least} is {wishes.min_tokens}, more than {most}, {wishes.max_tokens}.", param=least)

    def _sampling(self, request: GenerationRequest, prompt_tokens: int) -> SamplingParams:
        """Bound max_tokens by the context and check the engine for every option that is not neutral."""
        wishes = request.sampling
        room = self._info.max_model_len - prompt_tokens
        if wishes.min_tokens > room:
            least = request.called("min_tokens")
            raise ContextLengthExceeded(
                f"{least} is {wishes.min_tokens}, but the prompt of {prompt_tokens} tokens leaves {room} in "
                f"the model's context of {self._info.max_model_len}.",
                param=least,
            )
        values = msgspec.structs.asdict(wishes)
        values["max_tokens"] = room if wishes.max_tokens is None else min(wishes.max_tokens, room)
        sampling = SamplingParams(**values)
        neutral = SamplingParams(max_tokens=sampling.max_tokens)
        for name in sampling.__struct_fields__:
            if getattr(sampling, name) != getattr(neutral, name) and name not in self._info.capabilities.sampling:
                raise UnsupportedFeature(f"Engine {self._info.engine_id} can't do {name}.", param=request.called(name))
        return sampling
