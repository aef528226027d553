from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.slot_pool import WORTH_WAITING, common_prefix
from engines.protocol import LogprobParams
from tests.engines.local.sequences import sequence
from tests.engines.local.slot_ledger import PlannedEngine

A = b"a"
LONG = [1 + place % 7 for place in range(200)]


@given(
    st.lists(st.integers(0, 1), max_size=40),
    st.lists(st.integers(0, 1), max_size=40),
    st.lists(st.integers(0, 1), max_size=40),
    st.integers(0, 50),
)
def test_a_common_prefix_is_that_of_a_look_at_every_id(
    shared: list[int], one: list[int], other: list[int], limit: int
) -> None:
    pairs = zip(shared + one, shared + other, strict=False)
    expected = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    assert common_prefix(shared + one, shared + other, limit) == min(expected, limit)


def run(engine: PlannedEngine, name: str, prompt: list[int], steps: int = 0, **fields: Any) -> int:
    """Compute a prompt and so many tokens after the first, end it, and return what it took over."""
    one = sequence(name, prompt, **fields)
    engine.scheduler.add(one)
    engine.run_until_decoding()
    for _ in range(steps):
        engine.step()
    engine.scheduler.remove(one.key)
    return one.cached


def test_a_repeat_takes_over_all_but_the_last_token_in_place() -> None:
    engine = PlannedEngine(slots=4, kept_tokens=1000)
    assert run(engine, "1", LONG, steps=3) == 0
    assert engine.pool.kept == len(LONG) + 3
    assert run(engine, "2", LONG) == len(LONG) - 1
    assert engine.ledger.copied == 0
    assert engine.pool.kept == len(LONG)


def test_the_output_of_a_turn_is_part_of_the_next_ones_prefix() -> None:
    engine = PlannedEngine(slots=4, kept_tokens=1000, sampled=9)
    run(engine, "1", LONG, steps=5)
    assert run(engine, "2", [*LONG, 9, 9, 9, 9, 9, 9, 4, 5]) == len(LONG) + 5


def test_a_prefix_is_copied_where_the_slot_holds_much_more() -> None:
    engine = PlannedEngine(slots=4, kept_tokens=1000)
    run(engine, "1", LONG)
    assert run(engine, "2", [*LONG[:40], 99]) == 40
    assert engine.ledger.copied == 40
    assert run(engine, "3", LONG) == len(LONG) - 1


def test_a_prefix_of_a_running_sequence_is_copied() -> None:
    engine = PlannedEngine(slots=2)
    engine.scheduler.add(sequence("1", LONG))
    engine.run_until_decoding()
    assert run(engine, "2", LONG) == len(LONG) - 1
    assert engine.ledger.copied == len(LONG) - 1


@pytest.mark.parametrize(("start", "cached"), [(None, 199), (0, 0), (1, 1), (77, 77), (199, 199), (200, 199)])
def test_positions_whose_logprobs_are_asked_are_computed(start: int | None, cached: int) -> None:
    engine = PlannedEngine(slots=4, kept_tokens=1000)
    run(engine, "1", LONG)
    assert run(engine, "2", LONG, logprobs=LogprobParams(prompt_start=start)) == cached


def test_salts_keep_prefixes_apart() -> None:
    engine = PlannedEngine(slots=8, kept_tokens=10_000)
    salts = [None, "a", "b", None, "a", "b"]
    cached = [run(engine, str(number), LONG, cache_salt=salt) for number, salt in enumerate(salts)]
    assert cached == [0, 0, 0, 199, 199, 199]


def test_salts_keep_running_sequences_apart() -> None:
    engine = PlannedEngine(slots=3)
    salted = [sequence(str(number), LONG, cache_salt=salt) for number, salt in enumerate(["a", "b", "a"])]
    for one in salted:
        engine.scheduler.add(one)
    engine.run_until_decoding()
    assert [one.cached for one in salted] == [0, 0, 199]


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    engine = PlannedEngine(slots=8, kept_tokens=300)
    prompts = {name: [number] * 100 for number, name in enumerate("abcd", 1)}
    for name in "abcad":
        run(engine, name, prompts[name])
    assert engine.pool.kept <= 300
    assert sum(map(len, engine.ledger.tokens.values())) == engine.pool.kept
    assert [run(engine, name, prompts[name], logprobs=LogprobParams(prompt_start=50)) for name in "cad"] == [50] * 3
    assert run(engine, "b", prompts["b"]) == 0


def test_without_room_or_when_unsound_nothing_is_kept() -> None:
    engine = PlannedEngine(slots=2, kept_tokens=100)
    run(engine, "1", LONG)
    assert engine.pool.kept == 0
    unsound = sequence("2", LONG[:50])
    engine.scheduler.add(unsound)
    engine.run_until_decoding()
    engine.scheduler.remove(unsound.key, keep=False)
    assert engine.pool.kept == 0
    assert not engine.ledger.tokens


def test_prompts_that_begin_alike_are_computed_once() -> None:
    engine = PlannedEngine(slots=4, prefill_tokens=50)
    together = [sequence(str(number), [*LONG, number], arrival=number) for number in range(4)]
    for one in together:
        engine.scheduler.add(one)
    steps = engine.run_until_decoding()
    assert sum(count for step in steps[:4] for _, count in step) == len(LONG)
    assert steps[4:] == [[("0", 1), ("1", 1), ("2", 1), ("3", 1)]]
    assert [one.cached for one in together] == [0, len(LONG), len(LONG), len(LONG)]


def test_who_waits_for_one_that_leaves_goes_on_with_what_it_left() -> None:
    engine = PlannedEngine(slots=3, prefill_tokens=50, kept_tokens=1000)
    together = [sequence(str(number), LONG, arrival=number) for number in range(3)]
    for one in together:
        engine.scheduler.add(one)
    engine.step()
    engine.step()
    engine.scheduler.remove((A, "0"))
    engine.scheduler.remove((A, "2"))
    engine.run_until_decoding()
    assert together[1].cached == 100
    assert together[2].cached == 0


def test_little_is_not_waited_for() -> None:
    engine = PlannedEngine(slots=2, prefill_tokens=1000)
    for number in range(2):
        engine.scheduler.add(sequence(str(number), [*LONG[: WORTH_WAITING - 1], number], arrival=number))
    assert len(engine.step()) == 2


PROMPTS = st.builds(
    lambda stem, length, tail: [stem] * length + tail,
    st.integers(1, 2),
    st.integers(1, 150),
    st.lists(st.integers(3, 4), max_size=3),
)
ACTIONS = st.one_of(
    st.tuples(st.just("add"), PROMPTS, st.sampled_from([None, "salt"]), st.sampled_from([None, 0, 9, 80])),
    st.tuples(st.just("remove"), st.integers(0, 20), st.booleans(), st.none()),
    st.tuples(st.just("step"), st.none(), st.none(), st.none()),
)


@given(st.lists(ACTIONS, max_size=50), st.sampled_from([0, 100, 10_000]))
@settings(deadline=None)
def test_slots_hold_what_their_sequences_say_in_any_traffic(
    actions: list[tuple[str, object, object, int | None]], kept_tokens: int
) -> None:
    engine = PlannedEngine(slots=3, prefill_tokens=40, kept_tokens=kept_tokens, sampled=1)
    for number, (action, what, how, start) in enumerate(actions):
        if action == "add" and isinstance(what, list):
            wishes = LogprobParams(prompt_start=min(start, len(what))) if start is not None else None
            engine.scheduler.add(sequence(str(number), what, arrival=number, cache_salt=how, logprobs=wishes))
        elif action == "remove":
            engine.scheduler.remove((A, str(what)), keep=bool(how))
        else:
            engine.step()
        kept = engine.pool.kept
        assert kept <= kept_tokens
        for one in engine.scheduler.in_slots():
            assert one.cached <= one.reusable
            if engine.pool.has_begun(one):
                assert engine.ledger.tokens[one.slot][: one.computed] == one.held
    while engine.scheduler.in_slots() or engine.scheduler.waiting:
        engine.step()
        for one in engine.scheduler.in_slots():
            if one.decoding:
                engine.scheduler.remove(one.key)
    assert engine.pool.free == 3
    assert sum(map(len, engine.ledger.tokens.values())) == engine.pool.kept <= kept_tokens
