from pathlib import Path

import msgspec
import pytest

from engines.protocol import Finish, FinishKind
from engines.scripted.faults import Death, Failure, Miscount, NotANumber, Stall
from engines.scripted.script import Script, load_scripts
from engines.scripted.values import ListedValues

EVERYTHING = Script(
    token_ids=[5, 6],
    grouping=[2],
    finish=Finish(FinishKind.STOP, matched="end"),
    finish_apart=True,
    values=ListedValues([{5: -0.5, 7: -1.0}], rest=-9.0),
    cached_tokens=3,
    texts=["a", "b"],
    hidden_states=[[0.5]],
    multi_ids=[[1, 2], [3, 4]],
    extra_info={1: {"note": "x"}},
    speculative=True,
    faults=[Stall(1), Failure(1, code="engine_fault"), Death(2), NotANumber(0), Miscount(1, by=-1)],
    frames_after_abort=None,
)


def test_scripts_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "scripts.json"
    path.write_bytes(msgspec.json.encode([EVERYTHING, Script(token_ids=[1], cycle=True)]))
    assert load_scripts(path) == [EVERYTHING, Script(token_ids=[1], cycle=True)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds no script"),
        ('[{"token_id": [1]}]', "unknown field `token_id`"),
        ('[{"token_ids": ["x"]}]', r"\$\[0\].token_ids\[0\]"),
        ('[{"cycle": true}]', "can't be cycled"),
        ('[{"faults": [{"type": "fire", "at": 0}]}]', "fire"),
        ("[", "truncated"),
    ],
)
def test_wrong_file_is_refused_with_its_name(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "scripts.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_scripts(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.json: No such file"):
        load_scripts(tmp_path / "none.json")


@pytest.mark.parametrize("grouping", [[0], [0, 0], [2, -1]])
def test_grouping_must_get_on(grouping: list[int]) -> None:
    with pytest.raises(ValueError, match="grouping"):
        Script(token_ids=[1], grouping=grouping)


def test_texts_are_one_per_token() -> None:
    with pytest.raises(ValueError, match="one text per token"):
        Script(token_ids=[1, 2], texts=["a"])
