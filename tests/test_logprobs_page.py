from pathlib import Path

import pytest

from tests.cases.stage import Stage
from tests.logprobs_page import Played, check_shown, examples, play


@pytest.mark.parametrize("example", examples(), ids=lambda example: str(sorted(example.body)))
async def test_an_example_is_answered_as_shown(example: Played, small_model_dir: Path, tmp_path: Path) -> None:
    check_shown(example.shown, await play(Stage(small_model_dir, tmp_path), example))


def test_the_page_has_examples_of_each_route() -> None:
    assert {example.path for example in examples()} == {"/v1/completions", "/v1/chat/completions", "/generate"}
    assert len(examples()) >= 8


def test_a_wrong_value_would_be_seen() -> None:
    shown = {"a": [{"b": 1}]}
    check_shown(shown, {"a": [{"b": 1, "c": 2}], "d": 3})
    for answer in ({"a": [{"b": 2}]}, {"a": [{"c": 1}]}, {"a": [{"b": 1}, {"b": 1}]}, {}):
        with pytest.raises(AssertionError):
            check_shown(shown, answer)
