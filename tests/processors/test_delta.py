from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import Finish, FinishKind
from processors.delta import Delta, Extras
from tests.processors.answers import Answer, answers, deltas_of, joined, logprobs_of
from tests.processors.strategies import cuts

ANSWERS = answers(vocabulary=50)


def plain(text: str, ids: list[int], finish: Finish | None = None) -> Delta:
    return Delta(
        text=text,
        token_ids=ids,
        lengths=[1] * len(ids),
        prompt_tokens=1,
        completion_tokens=len(ids),
        cached_tokens=0,
        finish=finish,
    )


@given(ANSWERS, st.data())
def test_law_1_merged_deltas_are_the_deltas_joined(answer: Answer, data: st.DataObject) -> None:
    runs = data.draw(cuts(answer.tokens))
    merged, *later = deltas_of(answer, runs)
    for delta in later:
        merged.extend(delta)
    assert joined([merged.settle()]) == joined(deltas_of(answer, runs))


@given(ANSWERS, st.data())
def test_law_1_merging_is_associative(answer: Answer, data: st.DataObject) -> None:
    """Merged deltas can be merged again, settled in between or not."""
    runs = data.draw(cuts(answer.tokens))
    groups = data.draw(cuts(deltas_of(answer, runs), empty_runs=False))
    merged = []
    for first, *later in groups:
        for delta in later:
            first.extend(delta)
        merged.append(first.settle() if data.draw(st.booleans()) else first)
    whole = merged[0]
    for delta in merged[1:]:
        whole.extend(delta)
    assert joined([whole.settle()]) == joined(deltas_of(answer, runs))


def test_repeated_tokens_are_three_tokens() -> None:
    """S13: [5], then [5, 5]."""
    delta = plain("a", [5])
    delta.extend(plain("aa", [5, 5]))
    assert (delta.settle().text, delta.token_ids) == ("aaa", [5, 5, 5])


def test_merging_does_not_copy_what_was_merged_before() -> None:
    """Linear: the lists that grow are the same lists."""
    delta = plain("a", [1])
    delta.extras = Extras()
    grown = [delta.token_ids, delta.lengths, delta.prompt_logprobs, delta.extras.hidden_states, delta.extras.multi_ids]
    for _ in range(3):
        more = plain("b", [2])
        more.extras = Extras(hidden_states=[[0.5]], multi_ids=[[1]])
        delta.extend(more)
    after = [delta.token_ids, delta.lengths, delta.prompt_logprobs, delta.extras.hidden_states, delta.extras.multi_ids]
    assert [id(column) for column in after] == [id(column) for column in grown]
    assert delta.text == "a"
    assert delta.settle().text == "abbb"
    assert delta.settle().text == "abbb"


def test_the_finish_is_that_of_the_last_delta() -> None:
    """PR-01: an empty final step does not overwrite the finish, it carries it."""
    delta = plain("a", [1])
    delta.extend(plain("", [], Finish(FinishKind.LENGTH)))
    assert delta.finish == Finish(FinishKind.LENGTH)
    assert delta.token_ids == [1]


def test_state_that_a_later_delta_leaves_out_stays() -> None:
    extras = Extras(extra_info={"a": 1}, accepted_draft_tokens=3, verify_steps=2)
    extras.extend(Extras())
    assert extras.extra_info == {"a": 1}
    assert (extras.accepted_draft_tokens, extras.verify_steps) == (3, 2)


def test_an_embedding_is_the_latest() -> None:
    delta = plain("", [])
    for vector in ([1.0], [2.0], None):
        other = plain("", [])
        other.embedding = vector
        delta.extend(other)
    assert delta.embedding == [2.0]


@given(ANSWERS, st.data())
def test_law_3_a_cut_keeps_whole_entries(answer: Answer, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(answer.tokens)))
    logprobs = logprobs_of(answer, answer.tokens)
    logprobs.cut(length)
    assert logprobs == logprobs_of(answer, answer.tokens[:length])
