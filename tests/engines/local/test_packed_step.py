import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.cache import CacheShape, SlotCache
from engines.local.packed_step import PackedStep, Row, Span, close_runs

KV_HEADS, GROUP, SIZE, SCALING = 2, 3, 4, 0.4
SHAPE = CacheShape(layers=1, kv_heads=KV_HEADS, key_size=SIZE, value_size=SIZE)
HEADS = KV_HEADS * GROUP


def attention_by_hand(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One token [heads, size] over [tokens, kv heads, size], a head at a time."""
    rows = []
    for head in range(HEADS):
        scores = keys[:, head // GROUP] @ query[head] * SCALING
        rows.append(scores.softmax(0) @ values[:, head // GROUP])
    return torch.stack(rows)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), min_size=1, max_size=9), st.data())
@settings(max_examples=80, deadline=None)
def test_every_token_sees_its_own_sequence_up_to_itself(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    cache = SlotCache(SHAPE, slots=9, max_length=32, dtype=torch.float32, device=torch.device("cpu"), smallest=4)
    generator = torch.Generator().manual_seed(len(lengths))
    keys, values = (
        [torch.randn(held + new, KV_HEADS, SIZE, generator=generator) for held, new in lengths] for _ in range(2)
    )
    for slot, (held, new) in enumerate(lengths):
        cache.make_room(slot, held + new)
        cache.set_filled(slot, held + new)
    for slot, (held, _) in enumerate(lengths):
        place = cache.place(slot)
        place.size_class.keys[0][place.row, :, :held] = keys[slot][:held].transpose(0, 1)
        place.size_class.values[0][place.row, :, :held] = values[slot][:held].transpose(0, 1)

    order = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    spans = [Span(slot, lengths[slot][0], [0] * lengths[slot][1]) for slot in order]
    query = torch.randn(sum(len(span.token_ids) for span in spans), HEADS, SIZE, generator=generator)
    new_keys, new_values = (
        torch.cat([numbers[slot][lengths[slot][0] :] for slot in order]) for numbers in (keys, values)
    )
    result = PackedStep(spans, cache).attend(0, query, new_keys, new_values, SCALING)

    at = 0
    for span in spans:
        for position in range(span.start, span.end):
            seen = slice(0, position + 1)
            expected = attention_by_hand(query[at], keys[span.slot][seen], values[span.slot][seen])
            torch.testing.assert_close(result[at], expected, rtol=0, atol=1e-5)
            at += 1


@given(st.sets(st.integers(0, 40), min_size=1))
def test_runs_hold_every_row_and_little_between(places: set[int]) -> None:
    runs = close_runs([Row(place, 0, 0) for place in places])
    assert [row.row for run in runs for row in run] == sorted(places)
    for run in runs:
        assert run[-1].row - run[0].row < 2 * len(run)
