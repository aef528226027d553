"""Where a script's logprobs come from: a whole distribution at each position, so that all that is asked of it agrees.

A distribution is a total order of the vocabulary: higher values first, among equal ones the lower id. Ranks count
from 1 along this order, so that the sampled value, alternatives, chosen ids and ranks never contradict each other,
however many of them are asked for.
"""

import functools
import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Protocol

import msgspec
import numpy as np

_SHARPNESS = (1.25, 1.75, 3.0)
_WORD = 2**64 - 1
_GOLDEN = 0.6180339887498949


class Distribution(Protocol):
    """Log-probabilities of all ids at one position."""

    def value(self, token_id: int) -> float:
        """Natural logarithm of the id's probability."""

    def rank(self, token_id: int) -> int:
        """The id's place in the whole vocabulary, from 1."""

    def top(self, k: int) -> tuple[list[int], list[float]]:
        """The k most likely ids, or all where there are fewer, most likely first, and their values."""


class _Zipf:
    """Zipf's law over a vocabulary: ln p(rank) = -sharpness ln(rank) - ln(sum of rank'^-sharpness).

    Ids are laid along the ranks with a stride that is coprime to the vocabulary's size, so each id has one rank.
    """

    def __init__(self, vocab_size: int, sharpness: float) -> None:
        self.vocab_size = vocab_size
        self.sharpness = sharpness
        self.log_total = math.log(float(np.sum(np.arange(1, vocab_size + 1, dtype=np.float64) ** -sharpness)))
        self.stride = max(1, int(vocab_size * _GOLDEN))
        while math.gcd(self.stride, vocab_size) != 1:
            self.stride += 1
        self.inverse = pow(self.stride, -1, vocab_size)
        self.first_values = [self.value(rank) for rank in range(1, min(vocab_size, 64) + 1)]

    def value(self, rank: int) -> float:
        return -self.sharpness * math.log(rank) - self.log_total


@functools.lru_cache(maxsize=16)
def _zipf(vocab_size: int, sharpness: float) -> _Zipf:
    return _Zipf(vocab_size, sharpness)


class _ZipfDistribution:
    """The law, turned so that one id has one given rank."""

    __slots__ = ("_first", "_law")

    def __init__(self, law: _Zipf, token_id: int, rank: int) -> None:
        self._law = law
        self._first = (token_id - (rank - 1) * law.stride) % law.vocab_size

    def value(self, token_id: int) -> float:
        return self._law.value(self.rank(token_id))

    def rank(self, token_id: int) -> int:
        return (token_id - self._first) * self._law.inverse % self._law.vocab_size + 1

    def top(self, k: int) -> tuple[list[int], list[float]]:
        law = self._law
        k = min(k, law.vocab_size)
        first, stride, size = self._first, law.stride, law.vocab_size
        values = law.first_values[:k]
        values += [law.value(rank) for rank in range(len(values) + 1, k + 1)]
        return [(first + place * stride) % size for place in range(k)], values


class ZipfValues(msgspec.Struct, frozen=True, tag="zipf"):
    """A made-up but proper distribution at each position, a function of seed, position and sampled id alone.

    The sampled id has rank r or worse with probability 1 / r. Scripts with other seeds get other values.
    """

    seed: int = 0

    def at(self, position: int, token_id: int, vocab_size: int, *, prompt: bool = False) -> Distribution:
        """The distribution that `token_id` was drawn from at an output position, or at a prompt position."""
        bits = self._bits(position, prompt)
        law = _zipf(vocab_size, _SHARPNESS[(bits >> 16) % len(_SHARPNESS)])
        rank = 2**16 // (2**16 - (bits & 0xFFFF))
        return _ZipfDistribution(law, token_id, min(rank, vocab_size))

    def _bits(self, position: int, prompt: bool) -> int:
        """Scatter over 64 bits: odd multipliers and shifts, as multiplicative hashing does."""
        bits = (self.seed * 0x9E3779B97F4A7C15 + (2 * position + prompt + 1) * 0xD1342543DE82EF95) & _WORD
        bits = (bits ^ (bits >> 29)) * 0xA24BAED4963EE407 & _WORD
        return bits ^ (bits >> 32)


class _ListedDistribution:
    """Some ids' values; all other ids share one."""

    def __init__(self, listed: dict[int, float], rest: float, vocab_size: int) -> None:
        self._listed = listed
        self._rest = rest
        self._vocab_size = vocab_size

    def value(self, token_id: int) -> float:
        return self._listed.get(token_id, self._rest)

    def rank(self, token_id: int) -> int:
        value = self.value(token_id)
        before = sum((-other, other_id) < (-value, token_id) for other_id, other in self._listed.items())
        if self._rest > value:
            before += self._vocab_size - len(self._listed)
        elif self._rest == value:
            before += token_id - sum(other_id < token_id for other_id in self._listed)
        return before + 1

    def top(self, k: int) -> tuple[list[int], list[float]]:
        listed = sorted((-value, token_id) for token_id, value in self._listed.items())
        first = list(itertools.islice(heapq.merge(listed, self._others()), k))
        return [token_id for _, token_id in first], [-negated for negated, _ in first]

    def _others(self) -> Iterator[tuple[float, int]]:
        return ((-self._rest, token_id) for token_id in range(self._vocab_size) if token_id not in self._listed)


class ListedValues(msgspec.Struct, frozen=True, tag="listed"):
    """Dictated values: one dict id -> value a position, begun again when used up; -inf and ties are welcome.

    Ids that a position does not list have the value `rest`. `prompt` is for prompt positions, the same as for the
    output where it is empty. For NaN see `faults.NotANumber`: it has no place in an order.
    """

    positions: list[dict[int, float]]
    prompt: list[dict[int, float]] = []
    rest: float = -math.inf

    def __post_init__(self) -> None:
        if not self.positions:
            raise ValueError("listed values need at least one position")
        if any(math.isnan(value) for listed in self.positions + self.prompt for value in listed.values()):
            raise ValueError("listed values are numbers; NaN is a fault")

    def at(self, position: int, token_id: int, vocab_size: int, *, prompt: bool = False) -> Distribution:
        """The distribution at an output position, or at a prompt position, whatever id was drawn there."""
        listed = self.prompt if prompt and self.prompt else self.positions
        return _ListedDistribution(listed[position % len(listed)], self.rest, vocab_size)


Values = ZipfValues | ListedValues
