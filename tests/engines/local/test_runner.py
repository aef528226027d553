from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.loading import load_model
from engines.local.runner import ModelRunner, Span
from tests.engines.local.tiny_models import CONTEXT, VOCABULARY, loaded, plain_logits, tiny_config, tiny_model

MODEL = tiny_model(tiny_config())
SEQUENCES = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40), min_size=1, max_size=8)
GREETING = [504, 3575, 282, 4649, 314]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small matrices are faster without a pool of threads, the more so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def runner(slots: int = 8, smallest: int = 8) -> ModelRunner:
    return ModelRunner(loaded(MODEL), slots=slots, max_model_len=CONTEXT, smallest_block=smallest)


@given(SEQUENCES, st.data())
@settings(max_examples=30, deadline=None)
def test_any_chunking_in_any_mix_gives_the_logits_of_a_plain_forward(
    sequences: list[list[int]], data: st.DataObject
) -> None:
    run = runner()
    done = [0] * len(sequences)
    rows: list[list[torch.Tensor]] = [[] for _ in sequences]
    while any(position < len(ids) for position, ids in zip(done, sequences, strict=True)):
        waiting = [index for index, ids in enumerate(sequences) if done[index] < len(ids)]
        chosen = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True))
        spans = []
        for index in chosen:
            left = len(sequences[index]) - done[index]
            count = data.draw(st.one_of(st.just(1), st.integers(1, left)))
            spans.append(Span(index, done[index], sequences[index][done[index] : done[index] + count]))
        hidden = run.hidden_states(spans)
        assert hidden.shape[0] == sum(len(span.token_ids) for span in spans)
        for span, part in zip(spans, torch.split(hidden, [len(span.token_ids) for span in spans]), strict=True):
            rows[span.slot].append(run.logits(part))
            done[span.slot] = span.end
    for ids, parts in zip(sequences, rows, strict=True):
        torch.testing.assert_close(torch.cat(parts), plain_logits(MODEL, ids), rtol=0, atol=1e-4)


@given(st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=60), st.data())
@settings(max_examples=20, deadline=None)
def test_slots_are_reused_rewound_and_copied_without_a_trace(ids: list[int], data: st.DataObject) -> None:
    run = runner(slots=3)
    run.hidden_states([Span(0, 0, ids[::-1]), Span(1, 0, [*ids, 3])])
    run.release(0)
    shared = data.draw(st.integers(1, len(ids) - 1))
    run.copy_prefix(1, 2, shared)
    run.hidden_states([Span(1, shared, [5])])
    run.release(1)
    hidden = run.hidden_states([Span(2, shared, ids[shared:]), Span(0, 0, ids)])
    expected = plain_logits(MODEL, ids)
    torch.testing.assert_close(run.logits(hidden), torch.cat([expected[shared:], expected]), rtol=0, atol=1e-4)


def test_memory_follows_the_tokens_and_is_returned() -> None:
    run = runner(slots=8, smallest=8)
    assert run.cache_bytes == 0
    run.hidden_states([Span(slot, 0, [1] * 5) for slot in range(8)])
    assert run.cache_bytes == 8 * 8 * run.cache_bytes_per_token
    for slot in range(8):
        run.release(slot)
    assert run.cache_bytes == 0


@pytest.mark.parametrize(
    "spans",
    [
        [Span(0, 0, [])],
        [Span(0, 1, [1])],
        [Span(0, 0, [1]), Span(0, 0, [1])],
        [Span(9, 0, [1])],
        [Span(0, 0, [1] * (CONTEXT + 1))],
    ],
    ids=["empty", "gap", "twice", "no such slot", "too long"],
)
def test_impossible_spans_are_refused(spans: list[Span]) -> None:
    run = runner()
    with pytest.raises(ValueError):
        run.hidden_states([Span(1, 0, [1]), *spans])
    assert run.cache_bytes == 0


def test_the_context_of_the_model_bounds_the_runner() -> None:
    with pytest.raises(ValueError, match="context"):
        ModelRunner(loaded(MODEL), slots=1, max_model_len=CONTEXT + 1)


@pytest.mark.model
def test_the_real_model_alone_and_among_eight(small_model_dir: Path) -> None:
    model = load_model(str(small_model_dir), dtype="float32", device="cpu", report=lambda line: None)
    run = ModelRunner(model, slots=8, max_model_len=512)
    prompts = [GREETING[: 1 + index % 5] * (1 + 7 * index) for index in range(1, 8)]
    references = [plain_logits(model.model, ids).log_softmax(-1) for ids in [GREETING, *prompts]]

    alone = run.logits(run.hidden_states([Span(0, 0, GREETING)])).log_softmax(-1)
    assert int(alone[-1].argmax()) == 7042
    torch.testing.assert_close(alone, references[0], rtol=0, atol=1e-3)

    run.hidden_states([Span(slot, 0, ids[:-1]) for slot, ids in enumerate(prompts, start=1)])
    spans = [
        Span(0, 4, GREETING[4:]),
        *(Span(slot, len(ids) - 1, ids[-1:]) for slot, ids in enumerate(prompts, start=1)),
    ]
    among = run.logits(run.hidden_states(spans)).log_softmax(-1)
    torch.testing.assert_close(among, torch.stack([rows[-1] for rows in references]), rtol=0, atol=1e-3)
