import pickle

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.sampling import Sampler
from engines.local.scheduler import Scheduler
from engines.local.sequence import Sequence
from engines.protocol import EngineRequest, SamplingParams

SAMPLER = Sampler(100, torch.device("cpu"))
A, B = b"a", b"b"


def sequence(arrival: int, *, prompt: int = 3, owner: bytes = A, priority: int = 0, name: str = "") -> Sequence:
    params = SamplingParams(max_tokens=1000)
    request = EngineRequest(id=name or str(arrival), prompt_token_ids=[1] * prompt, sampling=params, priority=priority)
    return Sequence(owner, request, SAMPLER.start(params, [1], []), arrival)


def advance(scheduler: Scheduler) -> list[tuple[str, int]]:
    """Plan a step and do as if it were computed."""
    pieces = scheduler.plan()
    result = [(piece.sequence.request.id, piece.count) for piece in pieces]
    for piece in pieces:
        complete = piece.completes
        piece.sequence.computed += piece.count
        if complete:
            piece.sequence.append(9, frozenset(), 10_000)
    return result


def test_a_long_prompt_holds_up_no_running_row() -> None:
    scheduler = Scheduler(slots=4, queue_limit=9, prefill_tokens=10)
    scheduler.add(sequence(1))
    assert advance(scheduler) == [("1", 3)]
    scheduler.add(sequence(2, prompt=25))
    scheduler.add(sequence(3, prompt=4))
    assert advance(scheduler) == [("1", 1), ("2", 10)]
    assert advance(scheduler) == [("1", 1), ("2", 10)]
    assert advance(scheduler) == [("1", 1), ("2", 5), ("3", 4)]
    assert advance(scheduler) == [("1", 1), ("2", 1), ("3", 1)]


def test_slots_go_by_priority_then_arrival() -> None:
    scheduler = Scheduler(slots=1, queue_limit=9, prefill_tokens=10)
    for waiting in (sequence(1), sequence(2, priority=1), sequence(3), sequence(4, priority=-1)):
        scheduler.add(waiting)
    order = []
    while pieces := scheduler.plan():
        order.append(pieces[0].sequence.request.id)
        scheduler.remove(pieces[0].sequence.key)
    assert order == ["4", "1", "3", "2"]


def test_the_queue_has_a_limit_beyond_the_slots() -> None:
    scheduler = Scheduler(slots=2, queue_limit=1, prefill_tokens=10)
    for arrival in range(3):
        assert not scheduler.full
        scheduler.add(sequence(arrival))
    assert scheduler.full
    scheduler.plan()
    assert (scheduler.running, scheduler.waiting, scheduler.full) == (2, 1, True)
    scheduler.remove((A, "0"))
    assert not scheduler.full


def test_equal_ids_of_two_gateways_are_two_sequences() -> None:
    scheduler = Scheduler(slots=4, queue_limit=9, prefill_tokens=10)
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
    scheduler = Scheduler(slots=1, queue_limit=1000, prefill_tokens=10)
    scheduler.add(sequence(0))
    scheduler.plan()
    before = len(pickle.dumps(scheduler))
    for arrival in range(2, 5000):
        scheduler.add(sequence(arrival))
        scheduler.remove((A, str(arrival)))
    assert len(pickle.dumps(scheduler)) < before + 10_000


@given(st.lists(st.tuples(st.sampled_from(["add", "plan", "remove", "again"]), st.integers(0, 11)), max_size=60))
@settings(deadline=None)
def test_slots_are_never_shared_or_lost(actions: list[tuple[str, int]]) -> None:
    scheduler = Scheduler(slots=3, queue_limit=100, prefill_tokens=4)
    here: set[str] = set()
    for arrival, (action, number) in enumerate(actions):
        name = str(number)
        if action == "plan":
            advance(scheduler)
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
