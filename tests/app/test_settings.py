from typing import Any, get_args

import pytest
from pydantic import SecretStr

from app.settings import InvalidSettings, LogprobsModeName, Settings, Size, flag_of, variable_of
from engines.protocol import LogprobsMode

# What is given as text, and what it must become.
GIVEN: dict[str, tuple[str, Any]] = {
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("81", 81),
    "model": ("some/model", "some/model"),
    "served_model_name": ("m", "m"),
    "engine": ("scripted", ["scripted"]),
    "dtype": ("float32", "float32"),
    "device": ("cpu", "cpu"),
    "max_model_len": ("100", 100),
    "max_running": ("3", 3),
    "max_waiting": ("0", 0),
    "prefix_cache_tokens": ("0", 0),
    "scripted_step_ms": ("0.5", 0.5),
    "scripted_file": ("scripts.json", "scripts.json"),
    "max_logprobs": ("-1", -1),
    "max_logprob_entries": ("1000", 1000),
    "max_scoring_requests": ("1", 1),
    "logprobs_mode": ("processed_logprobs", "processed_logprobs"),
    "api_key": ("clé 钥匙", SecretStr("clé 钥匙")),
    "max_body": ("1GB", 10**9),
    "send_timeout": ("2.5", 2.5),
    "ping_interval": ("0", 0.0),
    "drain_timeout": ("0", 0.0),
    "timeout_keep_alive": ("75", 75),
    "latency_buckets": ("0.01, 0.1,1", [0.01, 0.1, 1.0]),
    "log_format": ("json", "json"),
    "log_level": ("debug", "debug"),
}
SWITCHES = ["strict", "skip_tokenizer_init", "incremental_streaming_output"]
# The fixed names of the customer and their defaults.
FIXED: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 8000,
    "model": None,
    "served_model_name": None,
    "dtype": "auto",
    "engine": ["local"],
    "max_model_len": None,
    "api_key": None,
    "max_logprobs": 20,
    "logprobs_mode": "raw_logprobs",
    "send_timeout": 30.0,
    "drain_timeout": 30.0,
    "ping_interval": 15.0,
    "max_body": 32 * 2**20,
    "timeout_keep_alive": 120,
    "log_format": "text",
    "log_level": "info",
    "strict": False,
}
WRONG = {
    "port": ["x", "-1", "65536", ""],
    "host": [""],
    "engine": ["", "local,"],
    "dtype": ["int8", "AUTO"],
    "max_model_len": ["0", "1.5"],
    "max_running": ["0"],
    "max_logprobs": ["-2"],
    "max_logprob_entries": ["0"],
    "max_scoring_requests": ["0"],
    "prefix_cache_tokens": ["-1"],
    "logprobs_mode": ["raw", "RAW"],
    "api_key": [""],
    "max_body": ["0", "32XB", "many", "-5"],
    "send_timeout": ["0", "nan", "inf"],
    "drain_timeout": ["-1"],
    "timeout_keep_alive": ["0"],
    "latency_buckets": ["1,a", "2,1", "1,1", "0,1", ""],
    "log_format": ["xml"],
    "strict": ["perhaps"],
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.delenv(variable_of(field), raising=False)


def read(*arguments: str) -> Settings:
    return Settings.from_command_line(list(arguments))


def test_every_option_is_tested() -> None:
    assert {*GIVEN, *SWITCHES} == set(Settings.model_fields)


@pytest.mark.parametrize("field", FIXED)
def test_default(field: str) -> None:
    assert getattr(read(), field) == FIXED[field]


@pytest.mark.parametrize("field", GIVEN)
def test_flag(field: str) -> None:
    text, value = GIVEN[field]
    assert getattr(read(flag_of(field), text), field) == value
    assert getattr(read(f"{flag_of(field)}={text}"), field) == value
    assert getattr(read(), field) != value


@pytest.mark.parametrize("field", GIVEN)
def test_environment_variable(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = GIVEN[field]
    monkeypatch.setenv(variable_of(field), text)
    assert getattr(read(), field) == value
    assert getattr(Settings(), field) == value


@pytest.mark.parametrize("field", SWITCHES)
def test_a_switch_is_on_off_or_left_alone(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert getattr(read(), field) is False
    assert getattr(read(flag_of(field)), field) is True
    monkeypatch.setenv(variable_of(field), "true")
    assert getattr(read(), field) is True
    assert getattr(read(flag_of(field).replace("--", "--no-")), field) is False


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_PORT", "81")
    assert read("--port", "82").port == 82


def test_engine_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read("--engine", "local", "--engine", "http://host:1/x").engine == ["local", "http://host:1/x"]
    monkeypatch.setenv("TAILRACE_ENGINE", "a,b")
    assert read().engine == ["a", "b"]


WRONG_PAIRS = [(field, text) for field, texts in WRONG.items() for text in texts]


@pytest.mark.parametrize(("field", "text"), [pair for pair in WRONG_PAIRS if pair[0] != "strict"])
def test_a_bad_flag_is_named_on_one_line(field: str, text: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        read(f"{flag_of(field)}={text}")
    check_names(str(caught.value), field)


@pytest.mark.parametrize(("field", "text"), WRONG_PAIRS)
def test_a_bad_variable_is_named_on_one_line(field: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable_of(field), text)
    with pytest.raises(InvalidSettings) as caught:
        read()
    check_names(str(caught.value), field)


def check_names(message: str, field: str) -> None:
    assert flag_of(field) in message
    assert variable_of(field) in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("field", ["host", "model", "api_key"])
def test_an_empty_value_is_called_empty(field: str) -> None:
    with pytest.raises(InvalidSettings, match=r"must not be empty$"):
        read(f"{flag_of(field)}=")


def test_several_faults_are_all_named() -> None:
    with pytest.raises(InvalidSettings, match=r"--port .*--max-running"):
        read("--port", "x", "--max-running", "0")


@pytest.mark.parametrize("arguments", [["--nope"], ["--nope", "1"], ["--por", "1"], ["stray"], ["--port"], ["a\nb"]])
def test_unknown_flags_and_words_are_refused(arguments: list[str]) -> None:
    with pytest.raises(InvalidSettings) as caught:
        read(*arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_the_key_is_never_shown() -> None:
    assert "open sesame" not in repr(read("--api-key", "open sesame"))
    assert "open sesame" not in str(read("--api-key", "open sesame"))


def test_help_tells_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("--help")
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    told = " ".join(shown.split())
    for field, info in Settings.model_fields.items():
        assert flag_of(field) in told
        assert info.description is not None
        assert info.description in told.replace("- ", "-")
        assert f"(default: {info.default})" in told
    assert "--max-body Size Largest request body. (default: 32MiB)" in told


def test_logprobs_modes_are_those_of_the_engines() -> None:
    assert set(get_args(LogprobsModeName)) == {str(mode) for mode in LogprobsMode}


@pytest.mark.parametrize(
    ("size", "shown"), [(2**30, "1GiB"), (32 * 2**20, "32MiB"), (3 * 2**10, "3KiB"), (1000, "1000"), (0, "0")]
)
def test_size_is_shown_in_its_largest_whole_unit(size: int, shown: str) -> None:
    assert str(Size(size)) == shown
