import pickle
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.sequence import Sequence
from engines.protocol import LogprobParams
from tests.engines.local import sequences
from tests.engines.local.slot_ledger import PlannedEngine

A, B = b"a", b"b"


def sequence(arrival: int, *, prompt: int = 3, name: str = "", **fields: Any) -> Sequence:
    """One whose prompt begins like no other's."""
    ids = [arrival % 100] + [1] * (prompt - 1)
    return sequences.sequence(name or str(arrival), ids, arrival=arrival, **fields)


def advance(engine: PlannedEngine) -> list[tuple[str, int]]:
    return [(piece.sequence.request.id, piece.count) for piece in engine.step()]


def test_a_long_prompt_holds_up_no_running_row() -> None:
    engine = PlannedEngine(slots=4)
    engine.scheduler.add(sequence(1))
    assert advance(engine) == [("1", 3)]
    engine.scheduler.add(sequence(2, prompt=25))
    engine.scheduler.add(sequence(3, prompt=4))
    assert advance(engine) == [("1", 1), ("2", 10)]
    assert advance(engine) == [("1", 1), ("2", 10)]
    assert advance(engine) == [("1", 1), ("2", 5), ("3", 4)]
    assert advance(engine) == [("1", 1), ("2", 1), ("3", 1)]


def test_logprobs_of_prompts_count_in_the_budget() -> None:
    engine = PlannedEngine(slots=4)
    engine.scheduler.add(sequence(1))
    advance(engine)
    engine.scheduler.add(sequence(2, prompt=25, logprobs=LogprobParams(prompt_start=12)))
    engine.scheduler.add(sequence(3, prompt=9))
    assert advance(engine) == [("1", 1), ("2", 10)]
    assert advance(engine) == [("1", 1), ("2", 2 + 4)]
    assert advance(engine) == [("1", 1), ("2", 5)]
    assert advance(engine) == [("1", 1), ("2", 4), ("3", 3)]
    assert advance(engine) == [("1", 1), ("2", 1), ("3", 6)]


def test_a_position_that_exceeds_the_budget_is_computed_alone() -> None:
    engine = PlannedEngine(slots=4)
    engine.scheduler.add(sequence(1, logprobs=LogprobParams(prompt_start=0, top_k=50_000)))
    engine.scheduler.add(sequence(2))
    assert advance(engine) == [("1", 1)]
    assert advance(engine) == [("1", 1)]
    assert advance(engine) == [("1", 1), ("2", 3)]


def test_copies_of_prefixes_count_in_the_budget() -> None:
    engine = PlannedEngine(slots=4)
    engine.scheduler.add(sequences.sequence("1", [5] * 641))
    engine.run_until_decoding()
    for arrival in (2, 3):
        engine.scheduler.add(sequences.sequence(str(arrival), [5] * 641, arrival=arrival))
    assert advance(engine) == [("1", 1), ("2", 1)]
    assert advance(engine) == [("1", 1), ("2", 1), ("3", 1)]


def test_slots_go_by_priority_then_arrival() -> None:
    scheduler = PlannedEngine(slots=1).scheduler
    for waiting in (sequence(1), sequence(2, priority=1), sequence(3), sequence(4, priority=-1)):
        scheduler.add(waiting)
    order = []
    while pieces := scheduler.plan():
        order.append(pieces[0].sequence.request.id)
        scheduler.remove(pieces[0].sequence.key)
    assert order == ["4", "1", "3", "2"]


def test_the_queue_has_a_limit_beyond_the_slots() -> None:
    scheduler = PlannedEngine(slots=2, queue_limit=1).scheduler
    for arrival in range(3):
        assert not scheduler.full
        scheduler.add(sequence(arrival))
    assert scheduler.full
    scheduler.plan()
    assert (scheduler.running, scheduler.waiting, scheduler.full) == (2, 1, True)
    scheduler.remove((A, "0"))
    assert not scheduler.full


def test_equal_ids_of_two_gateways_are_two_sequences() -> None:
    scheduler = PlannedEngine(slots=4).scheduler
    scheduler.add(sequence(1, name="x"))
    scheduler.add(sequence(2, name="x", owner=B))
    scheduler.plan()
    assert scheduler.keys_of(A) == [(A, "x")]
    removed = scheduler.remove((A, "x"))
    assert removed is not None
    assert removed.owner == A
    assert (B, "x") in scheduler
    assert (A, "x") not in scheduler
    assert scheduler.remove((A, "x")) is None


def test_requests_that_leave_the_queue_leave_nothing_in_it() -> None:
    scheduler = PlannedEngine(slots=1, queue_limit=1000).scheduler
    scheduler.add(sequence(0))
    scheduler.plan()
    before = len(pickle.dumps(scheduler))
    for arrival in range(2, 5000):
        scheduler.add(sequence(arrival))
        scheduler.remove((A, str(arrival)))
    assert len(pickle.dumps(scheduler)) < before + 10_000


@given(
    st.lists(st.tuples(st.sampled_from(["add", "plan", "remove", "again"]), st.integers(0, 11)), max_size=60),
    st.sampled_from([0, 8, 100]),
)
@settings(deadline=None)
def test_slots_are_never_shared_or_lost(actions: list[tuple[str, int]], kept_tokens: int) -> None:
    engine = PlannedEngine(slots=3, prefill_tokens=4, kept_tokens=kept_tokens)
    scheduler, here = engine.scheduler, set[str]()
    for arrival, (action, number) in enumerate(actions):
        name = str(number)
        if action == "plan":
            engine.step()
        elif action == "add" and name not in here:
            scheduler.add(sequence(arrival, name=name, prompt=1 + number, priority=number % 3))
            here.add(name)
        else:
            assert (scheduler.remove((A, name)) is not None) == (name in here)
            here.discard(name)
            if action == "again":
                scheduler.add(sequence(arrival, name=name))
                here.add(name)
        pieces = scheduler.plan()
        slots = [piece.sequence.slot for piece in pieces]
        assert len(set(slots)) == len(slots) <= 3
        assert set(slots) <= {0, 1, 2}
        assert scheduler.running + scheduler.waiting == len(here)
        assert scheduler.running == min(3, len(here))
        assert sum(piece.count for piece in pieces if not piece.sequence.decoding) <= 4
        decoding = [piece.sequence.request.id for piece in pieces if piece.sequence.decoding]
        assert len(decoding) == len(set(decoding))
