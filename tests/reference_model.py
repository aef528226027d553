"""The plain transformers model in float32: what the embedded engine's answers are held against."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TOLERANCE = 1e-3
"""How far a logprob may lie from the plain forward pass, and how near two tokens may be to count as a tie."""


class ReferenceModel:
    """A model with its tokenizer; every answer is computed by transformers alone."""

    def __init__(self, directory: Path) -> None:
        build_model: Any = AutoModelForCausalLM
        build_tokenizer: Any = AutoTokenizer
        self._model = build_model.from_pretrained(directory, dtype=torch.float32)
        self._tokenizer = build_tokenizer.from_pretrained(directory)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        token_ids: list[int] = self._tokenizer(text)["input_ids"]
        return token_ids

    def chat_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a conversation, up to where the assistant speaks."""
        token_ids: list[int] = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        return token_ids

    def text(self, token_ids: list[int]) -> str:
        """The text of ids, special tokens left out."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return text

    def logprobs(self, prompt: list[int], output: list[int]) -> torch.Tensor:
        """Natural logarithms of the distribution before each output token: [tokens, vocabulary]."""
        with torch.inference_mode():
            logits: torch.Tensor = self._model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
        return logits.float().log_softmax(-1)

    def generate(self, prompt: list[int], count: int) -> list[int]:
        """`count` greedy ids by `generate`, end-of-sequence ids or not. Fails where two tokens are too near a tie."""
        made = self._model.generate(
            torch.tensor([prompt]), max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        token_ids: list[int] = made[0, len(prompt) :].tolist()
        self.check_greedy(prompt, token_ids)
        return token_ids

    def check_greedy(self, prompt: list[int], output: list[int]) -> None:
        """Fail unless each token is the best by one forward pass over all of them, and no other is too near a tie."""
        best = self.logprobs(prompt, output).topk(2)
        assert best.indices[:, 0].tolist() == output
        assert (best.values[:, 0] - best.values[:, 1]).min() > TOLERANCE, "the outcome is open: take another prompt"

    def check(self, prompt: list[int], output: list[int], values: list[float], tops: list[dict[int, float]]) -> None:
        """Compare the logprobs of output tokens, and of the best ids at each place, with the plain forward pass."""
        self.check_named(prompt, output, [{token_id: value} for token_id, value in zip(output, values, strict=True)])
        self.check_named(prompt, output, tops)
        for here, top in zip(self.logprobs(prompt, output), tops, strict=True):
            best = torch.tensor(list(top.values()))
            torch.testing.assert_close(best, here.topk(len(top)).values, rtol=0, atol=TOLERANCE)

    def check_named(self, prompt: list[int], output: list[int], named: list[dict[int, float]]) -> None:
        """Compare the logprobs of some ids at each place with the plain forward pass."""
        for here, values in zip(self.logprobs(prompt, output), named, strict=True):
            told = torch.tensor(list(values.values()))
            torch.testing.assert_close(told, here[list(values)], rtol=0, atol=TOLERANCE)
