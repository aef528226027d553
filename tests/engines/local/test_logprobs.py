import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.local.logprobs import measure
from engines.protocol import LogprobParams

VOCABULARY = 1500
WISHES = st.builds(
    LogprobParams,
    top_k=st.integers(0, 20) | st.sampled_from([64, 65, VOCABULARY, VOCABULARY + 9]),
    token_ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=4).map(tuple),
)


@given(wishes=st.lists(WISHES, min_size=1, max_size=5), seed=st.integers(0, 2**32), coarse=st.booleans())
@settings(deadline=None, max_examples=50)
def test_values_are_the_log_softmax_and_ranks_its_order(wishes: list[LogprobParams], seed: int, coarse: bool) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(len(wishes), VOCABULARY) * 3
    if coarse:
        logits = logits.bfloat16().float()
    tokens = torch.randint(VOCABULARY, (len(wishes),))
    expected = torch.log_softmax(logits.double(), -1)
    for row, (wish, position) in enumerate(zip(wishes, measure(logits, tokens, wishes), strict=True)):
        order = logits[row].sort(descending=True, stable=True).indices.tolist()
        ranks = {id_: rank for rank, id_ in enumerate(order, 1)}
        token, k = int(tokens[row]), min(wish.top_k, VOCABULARY)
        assert position.top_ids == order[:k]
        assert position.rank == ranks[token]
        assert position.chosen_ranks == [ranks[id_] for id_ in wish.token_ids]
        ids = [token, *position.top_ids, *wish.token_ids]
        values = torch.tensor([position.value, *position.top_values, *position.chosen_values], dtype=torch.double)
        torch.testing.assert_close(values, expected[row, ids], rtol=0, atol=1e-5)
        assert len(set(zip(ids, values.tolist(), strict=True))) == len(set(ids)), "one id, one value, bit for bit"


def test_a_value_does_not_depend_on_what_else_is_asked() -> None:
    torch.manual_seed(0)
    logits, tokens = torch.randn(1, VOCABULARY), torch.tensor([7])
    sets = [measure(logits, tokens, [LogprobParams(top_k=k)])[0] for k in (0, 1, 5, 64, 65, VOCABULARY)]
    assert len({(position.value, position.rank) for position in sets}) == 1
    for position in sets:
        assert position.top_ids == sets[-1].top_ids[: len(position.top_ids)]
        assert position.top_values == sets[-1].top_values[: len(position.top_values)]


def test_a_greedy_token_has_rank_1_among_equals() -> None:
    logits = torch.zeros(1, VOCABULARY)
    position = measure(logits, logits.argmax(-1), [LogprobParams(top_k=2)])[0]
    assert (position.rank, position.top_ids) == (1, [0, 1])


def test_a_forbidden_token_has_no_probability() -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 3] = -torch.inf
    position = measure(logits, torch.tensor([0]), [LogprobParams(token_ids=(3,))])[0]
    assert position.chosen_values == [-torch.inf]
    assert position.chosen_ranks == [VOCABULARY]
