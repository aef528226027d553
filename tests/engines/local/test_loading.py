from pathlib import Path

import pytest
import torch

from engines.local.load_error import ModelLoadError
from engines.local.loading import choose_device, choose_dtype, load_model
from engines.local.runner import ModelRunner, Span
from tests.engines.local.tiny_models import CONTEXT, VOCABULARY, plain_logits, tiny_config, tiny_model


def quiet(line: str) -> None:
    pass


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    model = tiny_model(tiny_config(eos_token_id=[0, 5]))
    model.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_a_directory(directory: Path) -> None:
    lines: list[str] = []
    loaded = load_model(str(directory), dtype="float32", device="cpu", report=lines.append)
    assert loaded.directory == str(directory)
    assert (loaded.name, loaded.vocab_size, loaded.max_model_len) == ("tiny", VOCABULARY, CONTEXT)
    assert loaded.eos_token_ids == (0, 5)
    assert (loaded.device.type, loaded.dtype) == ("cpu", torch.float32)
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert lines[0] == "loading tiny as float32 on cpu"


def test_results_do_not_change_by_loading(directory: Path) -> None:
    loaded = load_model(str(directory), dtype="float32", device="cpu", report=quiet)
    run = ModelRunner(loaded, slots=1, max_model_len=CONTEXT)
    ids = [4, 8, 15, 16, 23, 42]
    expected = plain_logits(tiny_model(tiny_config()), ids)
    torch.testing.assert_close(run.logits(run.hidden_states([Span(0, 0, ids)])), expected, rtol=0, atol=2e-4)


def test_bfloat16(directory: Path) -> None:
    loaded = load_model(str(directory), dtype="bfloat16", device="cpu", report=quiet)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    run = ModelRunner(loaded, slots=2, max_model_len=CONTEXT)
    logits = run.logits(run.hidden_states([Span(0, 0, [4, 8, 15]), Span(1, 0, [16])]))
    assert logits.dtype == torch.float32
    expected = plain_logits(tiny_model(tiny_config()), [4, 8, 15])
    assert (logits[:3] - expected).norm() < 0.05 * expected.norm()


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        ("/no/such/place", {}, "no directory /no/such/place"),
        (None, {"dtype": "float8"}, "dtype 'float8' is not known; use auto, float32 or bfloat16"),
        (None, {"device": "toaster"}, "device 'toaster' can't be used"),
    ],
)
def test_what_can_not_be_loaded_is_refused_with_the_reason(
    source: str | None, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(ModelLoadError) as refusal:
        load_model(source, **options, report=quiet)
    assert reason in str(refusal.value)


def test_a_directory_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="holds no causal language model"):
        load_model(str(tmp_path), report=quiet)


def test_auto_takes_bfloat16_only_where_it_is_native() -> None:
    cpu = choose_device("cpu")
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    assert choose_dtype("auto", cpu) == (torch.bfloat16 if native else torch.float32)
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
