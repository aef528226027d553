"""OpenAI's `/v1/completions` answers, with vLLM's stop_reason, token ids and prompt logprobs."""

from collections.abc import Sequence

from processors.delta import Delta
from processors.dialects.legacy_logprobs import LegacyColumns, LegacyLogprobs
from processors.dialects.openai import OpenAIOptions, OpenAIRenderer, finish_json
from processors.dialects.positions import Shown, output_positions, prompt_positions
from processors.dialects.renderer import AnswerHead, PromptView
from processors.json_text import dump, dump_text
from processors.vocabulary import Vocabulary


class CompletionsRenderer(OpenAIRenderer):
    """Chunks and whole answers have the same choice objects.

    With echo the prompt's text leads each choice, and with logprobs its positions lead theirs.
    """

    object_name = chunk_name = "text_completion"

    def __init__(
        self,
        head: AnswerHead,
        vocabulary: Vocabulary,
        options: OpenAIOptions,
        prompts: Sequence[PromptView],
        *,
        echo: bool = False,
    ) -> None:
        choices = len(prompts) * options.samples
        super().__init__(head, vocabulary, options, choices)
        self._prompts = prompts
        self._echo = echo
        self._first = [True] * choices
        self._openings = [b'{"index":%d,"text":' % index for index in range(choices)]
        self._bare_heads = [self._prefix + opening for opening in self._openings]
        self._bare_tail = b',"logprobs":null,"finish_reason":null,"stop_reason":null}' + self._tail
        self._shown = Shown(options.logprobs or 0, options.chosen)
        as_ids = options.tokens_as_token_ids
        self._logprobs = [LegacyLogprobs(vocabulary, tokens_as_token_ids=as_ids) for _ in range(choices)]

    def _prompt(self, index: int) -> PromptView:
        return self._prompts[index // self.options.shown_samples]

    def start(self) -> bytes:
        """Nothing: the first delta opens the stream."""
        return b""

    def delta(self, index: int, delta: Delta) -> bytes:
        """One chunk. That of a text and nothing else, the most frequent one, has but one part that is new."""
        if self._bare and delta.finish is None and not self._first[index]:
            self._latest[index] = delta
            return self._bare_heads[index] + dump_text(delta.text) + self._bare_tail
        return self.event(index, delta, self._choice(index, delta))

    def whole(self, deltas: Sequence[Delta]) -> bytes:
        """The whole body."""
        return self.body([self._choice(index, delta) for index, delta in enumerate(self.shown(deltas))], deltas)

    def _choice(self, index: int, delta: Delta) -> bytes:
        text = delta.text
        ids = b""
        if self._first[index]:
            self._first[index] = False
            prompt = self._prompt(index)
            if self._echo:
                text = prompt.text + text
            if self.options.return_token_ids:
                ids = b',"prompt_token_ids":' + dump(prompt.token_ids)
        if self.options.return_token_ids:
            ids += b',"token_ids":' + dump(delta.token_ids)
        finish, stop = finish_json(delta.finish)
        return b'%b%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b%b%b%b}' % (
            self._openings[index],
            dump_text(text),
            self._legacy(index, delta),
            finish,
            stop,
            ids,
            self.prompt_block(delta),
            self.foreign(index, delta),
        )

    def _legacy(self, index: int, delta: Delta) -> bytes:
        """The logprobs object, null where there are none to show."""
        pieces = delta.prompt_logprobs if self._echo else []
        if self.options.logprobs is None or (delta.logprobs is None and not pieces):
            return b"null"
        renderer = self._logprobs[index]
        if not pieces and delta.logprobs is not None and len(delta.token_ids) == 1:
            return renderer.single(delta.lengths[0], output_positions(delta.token_ids, delta.logprobs, self._shown))
        columns = LegacyColumns()
        lengths = self._prompt(index).lengths
        for piece in pieces:
            absent, positions = prompt_positions(piece, self._shown)
            run = lengths[piece.start : piece.start + len(piece.token_ids)]
            renderer.add(columns, run, positions, piece.token_ids[:absent])
        if delta.logprobs is not None:
            renderer.add(columns, delta.lengths, output_positions(delta.token_ids, delta.logprobs, self._shown))
        return columns.json()
