import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import EngineRequest, LogprobParams, SamplingParams
from processors.fanout import samples_of
from processors.request import PreparedRequest
from processors.text import TextParams

LARGEST = 2**63 - 1
SMALLEST = -(2**63)


def prepared(seed: int | None = None) -> PreparedRequest:
    return PreparedRequest(
        engine_request=EngineRequest(
            id="first",
            prompt_token_ids=[1, 2],
            sampling=SamplingParams(max_tokens=4, seed=seed),
            logprobs=LogprobParams(top_k=2, prompt_start=0),
        ),
        text=TextParams(stop=("x",)),
        stream=True,
        arrival=1.0,
        prompt_text="p",
    )


def seeds(seed: int | None, count: int) -> list[int | None]:
    return [sample.engine_request.sampling.seed for sample in samples_of(prepared(seed), count)]


@pytest.mark.parametrize("count", [1, 2, 128])
def test_every_sample_has_an_id_of_its_own_and_all_else_is_shared(count: int) -> None:
    first, *others = samples = samples_of(prepared(), count)
    assert len(samples) == len({sample.engine_request.id for sample in samples}) == count
    assert first == prepared()
    for sample in others:
        request = msgspec.structs.replace(sample.engine_request, id="first")
        assert msgspec.structs.replace(sample, engine_request=request) == first


def test_seeds_count_up_and_wrap() -> None:
    assert seeds(7, 3) == [7, 8, 9]
    assert seeds(-1, 3) == [-1, 0, 1]
    assert seeds(LARGEST - 1, 4) == [LARGEST - 1, LARGEST, SMALLEST, SMALLEST + 1]


def test_without_a_seed_no_sample_has_one() -> None:
    assert seeds(None, 3) == [None] * 3


@given(st.integers(SMALLEST, LARGEST), st.integers(1, 128))
def test_seeds_are_distinct_64_bit_integers(seed: int, count: int) -> None:
    drawn = seeds(seed, count)
    assert len(set(drawn)) == count
    assert all(each is not None and SMALLEST <= each <= LARGEST for each in drawn)
