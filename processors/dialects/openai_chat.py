"""OpenAI's `/v1/chat/completions` answers, with vLLM's stop_reason, token ids and prompt logprobs."""

from collections.abc import Sequence

from processors.delta import Delta
from processors.dialects.chat_logprobs import ChatLogprobs
from processors.dialects.openai import OpenAIOptions, OpenAIRenderer, finish_json
from processors.dialects.positions import Shown, output_positions
from processors.dialects.renderer import AnswerHead, PromptView
from processors.json_text import dump, dump_text, to_keep
from processors.vocabulary import Vocabulary


class ChatRenderer(OpenAIRenderer):
    """Streams open with a role chunk per choice; the finish rides on the chunk of the last token.

    echo: text that leads each answer; a stream has it beside the role.
    """

    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def __init__(
        self,
        head: AnswerHead,
        vocabulary: Vocabulary,
        options: OpenAIOptions,
        prompt: PromptView,
        *,
        role: str,
        echo: str = "",
    ) -> None:
        super().__init__(head, vocabulary, options, options.samples)
        self._prompt = prompt
        self._role = to_keep(dump_text(role))
        self._echo = echo
        self._shown = Shown(options.logprobs or 0, options.chosen, ordered=True)
        self._logprobs = ChatLogprobs(vocabulary, tokens_as_token_ids=options.tokens_as_token_ids)
        self._openings = [b'{"index":%d,"delta":{"content":' % index for index in range(options.samples)]
        self._bare_heads = [self._prefix + opening for opening in self._openings]
        self._bare_tail = b'},"logprobs":null,"finish_reason":null}' + self._tail

    def _prompt_ids(self) -> bytes:
        if not self.options.return_token_ids:
            return b""
        return b',"prompt_token_ids":' + dump(self._prompt.token_ids)

    def start(self) -> bytes:
        """The role chunks; the first one carries the prompt's token ids if they were asked for."""
        events = []
        for index in range(self.options.samples):
            choice = b'{"index":%d,"delta":{"role":%b,"content":%b},"logprobs":null,"finish_reason":null}' % (
                index,
                self._role,
                dump_text(self._echo),
            )
            extra = self._prompt_ids() if index == 0 else b""
            events.append(self._prefix + choice + b"]" + extra + self._tail[1:])
        return b"".join(events)

    def delta(self, index: int, delta: Delta) -> bytes:
        """One chunk. The prompt's logprobs stand beside the choices, once for all of them.

        A chunk of a text and nothing else, the most frequent one, has but one part that is new.
        """
        if self._bare and delta.finish is None:
            self._latest[index] = delta
            return self._bare_heads[index] + dump_text(delta.text) + self._bare_tail
        choice = self._openings[index] + dump_text(delta.text) + b"}" + self._rest(index, delta, streamed=True) + b"}"
        return self.event(index, delta, choice, self.prompt_block(delta) if index == 0 else b"")

    def whole(self, deltas: Sequence[Delta]) -> bytes:
        """The whole body."""
        choices = [
            b'{"index":%d,"message":{"role":%b,"content":%b,"refusal":null}%b}'
            % (index, self._role, dump_text(self._echo + delta.text), self._rest(index, delta, streamed=False))
            for index, delta in enumerate(deltas)
        ]
        return self.body(choices, deltas, self._prompt_ids() + self.prompt_block(deltas[0]))

    def _rest(self, index: int, delta: Delta, *, streamed: bool) -> bytes:
        """What follows the text in a choice."""
        rest = b',"logprobs":'
        if delta.logprobs is None or self.options.logprobs is None:
            rest += b"null"
        else:
            rest += self._logprobs.render(output_positions(delta.token_ids, delta.logprobs, self._shown))
        finish, stop = finish_json(delta.finish)
        rest += b',"finish_reason":' + finish
        if not streamed or delta.finish is not None:
            rest += b',"stop_reason":' + stop
        if self.options.return_token_ids:
            rest += b',"token_ids":' + dump(delta.token_ids)
        return rest + self.foreign(index, delta)
