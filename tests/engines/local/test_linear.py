import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from engines.local.linear import PackedLinear, pack_linears, packing_works

needs_packing = pytest.mark.skipif(not packing_works(torch.float32), reason="this torch has no packed linear layers")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.middle = nn.Sequential(nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 16, bias=False))
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.middle(self.embedding(ids)))
        return result


@needs_packing
@given(st.integers(1, 40), st.integers(1, 90), st.integers(1, 90), st.booleans(), st.sampled_from([(), (1,), (2, 3)]))
@settings(max_examples=60, deadline=None)
def test_a_packed_layer_computes_what_linear_does(
    rows: int, inputs: int, outputs: int, biased: bool, outer: tuple[int, ...]
) -> None:
    torch.manual_seed(rows)
    plain = nn.Linear(inputs, outputs, bias=biased)
    data = torch.randn(*outer, rows, inputs)
    with torch.inference_mode():
        packed = PackedLinear(plain.weight, plain.bias)(data)
        torch.testing.assert_close(packed, plain(data), rtol=1e-4, atol=1e-4)


@needs_packing
def test_all_layers_are_replaced_and_the_tied_embedding_stays() -> None:
    model = Tied()
    ids = torch.tensor([[3, 39, 0]])
    with torch.inference_mode():
        before = model(ids)
        assert pack_linears(model) == 3
        torch.testing.assert_close(model(ids), before, rtol=1e-4, atol=1e-4)
    assert [name for name, child in model.named_modules() if isinstance(child, PackedLinear)] == [
        "middle.0",
        "middle.2",
        "head",
    ]
    assert model.embedding.weight.shape == (40, 16)


@needs_packing
def test_unpacked_weights_are_freed() -> None:
    model = Tied()
    middle = model.get_submodule("middle.0")
    assert isinstance(middle, nn.Linear)
    gone, kept = weakref.ref(middle.weight), weakref.ref(model.embedding.weight)
    del middle
    pack_linears(model)
    assert gone() is None
    assert kept() is not None


def test_a_dtype_that_can_not_be_packed_keeps_its_linear_layers() -> None:
    model = Tied().double()
    assert not packing_works(torch.float64)
    assert pack_linears(model) == 0
    assert isinstance(model.head, nn.Linear)
    assert model(torch.tensor([1])).dtype == torch.float64


def test_bfloat16_is_packed_where_it_works_and_computes_alike_in_any_case() -> None:
    model = Tied().bfloat16()
    ids = torch.arange(40)
    with torch.inference_mode():
        before = model(ids).float()
        assert pack_linears(model) == (3 if packing_works(torch.bfloat16) else 0)
        assert (model(ids).float() - before).norm() < 0.03 * before.norm()
