import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import EngineRequest, Finish, FinishKind, SamplingParams
from engines.scripted.ending import Ending, ending_of
from engines.scripted.script import Script

LENGTH, STOP = Finish(FinishKind.LENGTH), Finish(FinishKind.STOP)


def ending(script: Script, sampling: SamplingParams, *, prompt: int = 4, max_model_len: int = 1000) -> Ending:
    request = EngineRequest(id="r", prompt_token_ids=[1] * prompt, sampling=sampling)
    return ending_of(script, request, (0, 9), max_model_len)


def test_script_longer_than_max_tokens_ends_by_length() -> None:
    assert ending(Script(token_ids=[1, 2, 3]), SamplingParams(max_tokens=2)) == ([1, 2], LENGTH)
    assert ending(Script(token_ids=[1, 2, 3]), SamplingParams(max_tokens=0)) == ([], LENGTH)


def test_script_that_reaches_max_tokens_ends_by_length() -> None:
    assert ending(Script(token_ids=[1, 2, 3]), SamplingParams(max_tokens=3)) == ([1, 2, 3], LENGTH)


def test_shorter_script_stops() -> None:
    assert ending(Script(token_ids=[1, 2, 3]), SamplingParams(max_tokens=4)) == ([1, 2, 3], STOP)
    assert ending(Script(), SamplingParams(max_tokens=4)) == ([], STOP)


def test_dictated_finish_holds_if_all_tokens_are_sent() -> None:
    script = Script(token_ids=[1, 2, 9], finish=Finish(FinishKind.ABORT))
    assert ending(script, SamplingParams(max_tokens=5)) == ([1, 2, 9], script.finish)
    assert ending(script, SamplingParams(max_tokens=3)) == ([1, 2, 9], script.finish)
    assert ending(script, SamplingParams(max_tokens=2)) == ([1, 2], LENGTH)
    assert ending(script, SamplingParams(max_tokens=5, stop_token_ids=(2,))) == (
        [1, 2],
        Finish(FinishKind.STOP, matched=2),
    )


def test_end_of_sequence_matches_no_id_and_can_be_ignored() -> None:
    script = Script(token_ids=[1, 9, 2, 3])
    assert ending(script, SamplingParams(max_tokens=9)) == ([1, 9], STOP)
    assert ending(script, SamplingParams(max_tokens=9, stop_token_ids=(9,))) == ([1, 9], STOP)
    assert ending(script, SamplingParams(max_tokens=3, ignore_eos=True)) == ([1, 9, 2], LENGTH)
    assert ending(script, SamplingParams(max_tokens=9, ignore_eos=True, stop_token_ids=(9,))) == (
        [1, 9],
        Finish(FinishKind.STOP, matched=9),
    )


def test_min_tokens_come_first() -> None:
    script = Script(token_ids=[1, 9, 2, 9, 3])
    assert ending(script, SamplingParams(max_tokens=9, min_tokens=2)) == ([1, 9, 2, 9], STOP)


def test_context_bounds_the_output() -> None:
    script = Script(token_ids=[1], cycle=True)
    assert ending(script, SamplingParams(max_tokens=50), prompt=10, max_model_len=13) == ([1, 1, 1], LENGTH)
    assert ending(script, SamplingParams(max_tokens=50), prompt=20, max_model_len=13) == ([], LENGTH)


@given(
    token_ids=st.lists(st.integers(0, 9), min_size=1),
    cycle=st.booleans(),
    max_tokens=st.integers(0, 40),
    min_tokens=st.integers(0, 40),
    stops=st.sets(st.integers(0, 9)),
    ignore_eos=st.booleans(),
)
def test_ending_is_the_first_reason_to_end(
    token_ids: list[int], cycle: bool, max_tokens: int, min_tokens: int, stops: set[int], ignore_eos: bool
) -> None:
    sampling = SamplingParams(
        max_tokens=max_tokens, min_tokens=min_tokens, stop_token_ids=tuple(stops), ignore_eos=ignore_eos
    )
    sent, finish = ending(Script(token_ids=token_ids, cycle=cycle), sampling)
    assert sent == [token_ids[place % len(token_ids)] for place in range(len(sent))]
    enders = stops if ignore_eos else stops | {0, 9}
    assert not enders.intersection(sent[min_tokens:-1])
    if len(sent) > min_tokens and sent[-1] in enders:
        assert finish.kind is FinishKind.STOP
        assert finish.matched == (sent[-1] if ignore_eos or sent[-1] not in {0, 9} else None)
    elif len(sent) == max_tokens:
        assert finish == LENGTH
    else:
        assert (len(sent), cycle, finish) == (len(token_ids), False, STOP)


@pytest.mark.parametrize("cycle", [False, True])
def test_script_itself_is_not_shared(cycle: bool) -> None:
    script = Script(token_ids=[1, 2, 3], cycle=cycle)
    ending(script, SamplingParams(max_tokens=3)).token_ids.append(7)
    assert script.token_ids == [1, 2, 3]
