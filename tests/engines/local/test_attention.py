import pytest
import torch

from engines.local.attention import attention_forward
from engines.local.load_error import ModelLoadError


class Layer(torch.nn.Module):
    is_causal = True

    def __init__(self, layer_idx: int | None = 3) -> None:
        super().__init__()
        self.layer_idx = layer_idx


class Recorder:
    """Hands the queries back and notes what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, torch.Size, torch.Size, torch.Size, float]] = []

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        self.seen.append((layer, query.shape, key.shape, value.shape, scaling))
        return query


QUERY, KEY, VALUE = torch.randn(1, 6, 5, 16), torch.randn(1, 2, 5, 16), torch.randn(1, 2, 5, 16)


def test_heads_and_tokens_change_places_and_the_step_gets_its_layer() -> None:
    step = Recorder()
    result, weights = attention_forward(Layer(), QUERY, KEY, VALUE, None, step=step, position_ids=torch.arange(5))
    assert step.seen == [(3, (5, 6, 16), (5, 2, 16), (5, 2, 16), 0.25)]
    assert torch.equal(result, QUERY.transpose(1, 2))
    assert weights is None


def test_a_model_s_own_scaling_is_passed_on() -> None:
    step = Recorder()
    attention_forward(Layer(), QUERY, KEY, VALUE, None, step=step, scaling=0.5)
    assert step.seen[0][-1] == 0.5


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sliding_window": 64}, "sliding_window"),
        ({"softcap": 30.0, "s_aux": torch.zeros(6)}, "s_aux, softcap"),
        ({"is_causal": False}, "is_causal=False"),
        ({"dropout": 0.1}, "dropout"),
        ({"attention_mask": torch.zeros(1, 1, 5, 5)}, "attention_mask"),
    ],
    ids=["window", "cap and sinks", "both ways", "dropout", "mask"],
)
def test_other_kinds_of_attention_are_refused_by_name(options: dict[str, object], reason: str) -> None:
    call = {"attention_mask": None, "step": Recorder()} | options
    with pytest.raises(ModelLoadError, match=f"^Layer needs attention with {reason}$"):
        attention_forward(Layer(), QUERY, KEY, VALUE, **call)  # type: ignore[arg-type]


def test_a_layer_without_a_number_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="unnumbered"):
        attention_forward(Layer(None), QUERY, KEY, VALUE, None, step=Recorder())
