import math

import pytest

from engines.errors import EngineUnavailable
from engines.protocol import EngineState, Finish, FinishKind, LogprobParams
from engines.scripted.faults import Death, Failure, Miscount, NotANumber, Stall
from engines.scripted.script import Script
from tests.engines.scripted.stepped import SteppedEngine

TOKENS = [11, 12, 13, 14, 15]


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("grouping", [[1], [2], [5], [0, 3]])
async def test_stalled_request_goes_on_when_released(at: int, grouping: list[int]) -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, grouping=grouping, faults=[Stall(at)])])
    stepped.submit("a")
    stepped.run()
    assert stepped.answer("a").token_ids == TOKENS[:at]
    assert stepped.engine.running == 1
    stepped.engine.release("a")
    stepped.run()
    assert stepped.answer("a").token_ids == TOKENS
    assert stepped.answer("a").finish == Finish(FinishKind.STOP)


async def test_stall_of_one_request_is_not_another_ones() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, faults=[Stall(1)]), Script(token_ids=TOKENS)])
    stepped.submit("a")
    stepped.submit("b")
    stepped.run()
    assert stepped.answer("a").token_ids == TOKENS[:1]
    assert stepped.answer("b").token_ids == TOKENS


@pytest.mark.parametrize("at", [0, 2, 4])
async def test_failed_request_ends_with_its_error_instead_of_the_token(at: int) -> None:
    fault = Failure(at, code="invalid_logits", message="It broke.")
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, grouping=[3], faults=[fault])])
    stepped.submit("a")
    stepped.run()
    answer = stepped.answer("a")
    assert answer.token_ids == TOKENS[:at]
    assert answer.finish == Finish(FinishKind.ERROR, code="invalid_logits", message="It broke.")
    assert stepped.recorder.rows["a"][-1].token_ids == []
    assert stepped.engine.running == 0


async def test_faults_at_one_token_come_in_order() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, faults=[Stall(2), Failure(2)])])
    stepped.submit("a")
    stepped.run()
    assert stepped.answer("a").finish is None
    stepped.engine.release("a")
    stepped.run()
    assert stepped.answer("a").token_ids == TOKENS[:2]
    assert stepped.answer("a").finish == Finish(FinishKind.ERROR, code="engine_fault", message="The engine failed.")


async def test_death_takes_every_request_with_it() -> None:
    stepped = await SteppedEngine.start(
        [Script(token_ids=TOKENS), Script(token_ids=TOKENS, faults=[Death(2, reason="out of memory")])]
    )
    stepped.submit("a")
    stepped.submit("b")
    stepped.run()
    assert stepped.recorder.downs == [("scripted", "out of memory")]
    assert stepped.answer("a").token_ids == stepped.answer("b").token_ids == TOKENS[:2]
    assert stepped.engine.state is EngineState.DOWN
    with pytest.raises(EngineUnavailable):
        stepped.submit("c")


@pytest.mark.parametrize("grouping", [[1], [5]])
async def test_not_a_number_is_one_tokens_value(grouping: list[int]) -> None:
    faulty = Script(token_ids=TOKENS, grouping=grouping, faults=[NotANumber(3)])
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS), faulty, Script(token_ids=TOKENS)])
    for request_id in "abc":
        stepped.submit(request_id, logprobs=LogprobParams(top_k=1))
    stepped.run()
    whole, broken = stepped.answer("a").values, stepped.answer("b").values
    assert [math.isnan(value) for value in broken] == [False, False, False, True, False]
    assert broken[:3] + broken[4:] == whole[:3] + whole[4:]
    assert stepped.answer("c").values == whole


async def test_miscount_is_in_the_totals_from_its_token_on() -> None:
    script = Script(token_ids=TOKENS, grouping=[2], faults=[Miscount(2, by=-1), Miscount(4, by=3)])
    stepped = await SteppedEngine.start([script])
    stepped.submit("a")
    stepped.run()
    assert stepped.totals("a") == [2, 3, 7]


async def test_rows_may_come_after_an_abort() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, frames_after_abort=2)])
    stepped.submit("a")
    stepped.step()
    stepped.engine.abort(["a"])
    assert stepped.engine.running == 1
    stepped.run()
    assert stepped.answer("a").token_ids == TOKENS[:3]
    assert stepped.engine.running == 0


async def test_abort_may_be_refused() -> None:
    stepped = await SteppedEngine.start([Script(token_ids=TOKENS, frames_after_abort=None)])
    stepped.submit("a")
    stepped.engine.abort(["a"])
    stepped.run()
    assert stepped.answer("a").token_ids == TOKENS
    assert stepped.answer("a").finish == Finish(FinishKind.STOP)
