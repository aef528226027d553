import re
from pathlib import Path

import pytest

from app.settings import Settings, flag_of, variable_of
from deploy.docs_blocks import BLOCKS, DOCS, OPENAPI, ROUTES, filled, openapi, refused_table, settings_table, table

PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_pages_say_what_the_code_says(path: Path) -> None:
    assert path.read_text() == filled(path.read_text()), "run `make docs`"


def test_the_schema_is_that_of_the_app() -> None:
    assert OPENAPI.read_text() == openapi(), "run `make docs`"


def test_each_block_has_its_one_place() -> None:
    used = [name for path in PAGES for name in re.findall(r"<!-- make docs: (.*?) -->", path.read_text())]
    assert sorted(used) == sorted(BLOCKS)


def test_only_blocks_are_written() -> None:
    page = "before\n<!-- make docs: errors -->\nold\n<!-- end -->\nbetween\n<!-- end -->\n"
    new = filled(page)
    assert "old" not in new
    assert "`context_length_exceeded`" in new
    assert new.startswith("before\n<!-- make docs: errors -->\n\n| Status |")
    assert new.endswith("|\n\n<!-- end -->\nbetween\n<!-- end -->\n")
    assert filled(new) == new


def test_an_unknown_block_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled("<!-- make docs: nothing -->\n<!-- end -->")


def test_a_bar_does_not_end_a_cell() -> None:
    assert table(["a"], [["x|y"]]) == "| a |\n| --- |\n| x\\|y |\n"


def test_an_option_is_one_row_with_flag_variable_default_and_help() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) == len(Settings.model_fields)
    for row, (name, field) in zip(rows, Settings.model_fields.items(), strict=True):
        assert f"`{flag_of(name)}`" in row
        assert f"`{variable_of(name)}`" in row
        assert str(field.description) in row
    assert "| `--max-body` | `TAILRACE_MAX_BODY` | `32MiB` | Largest request body. |" in rows, (
        "a default is shown as it is given"
    )
    (dtype,) = (row for row in rows if "`--dtype`" in row)
    assert "`auto`" in dtype.split("|")[3]
    assert dtype.endswith("One of `auto`, `bfloat16`, `float32`. |")


def test_a_refused_field_stands_with_the_routes_that_know_it() -> None:
    rows = refused_table().splitlines()[2:]
    names = {name for model in ROUTES.values() for name in model.UNSUPPORTED}
    assert {row.split("`")[1] for row in rows} == names
    assert '| `suffix` | completions | `""` |' in rows
    assert "| `audio` | chat | none but `null` |" in rows
    assert "| `lora_path` | completions, chat, generate | none but `null` |" in rows
