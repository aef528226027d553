"""The house rules: directions of imports, sizes of files and functions, tests that mirror the tree."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ["app", "routers", "processors", "engines"]
SOURCES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base"}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def functions_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_go_one_way(path: Path) -> None:
    floor = FLOORS.index(path.relative_to(ROOT).parts[0])
    above = set(FLOORS[:floor]) | {"tests", "benchmarks"}
    upward = {name for name in imports_of(path) if name.split(".")[0] in above}
    assert not upward


@pytest.mark.parametrize("path", [path for path in SOURCES if path.is_relative_to(ROOT / "engines")], ids=module_of)
def test_engines_know_nothing_of_http(path: Path) -> None:
    http = {"fastapi", "starlette", "uvicorn", "sse_starlette", "pydantic", "httptools", "http"}
    assert not {name for name in imports_of(path) if name.split(".")[0] in http}


def test_no_cycles_between_modules() -> None:
    modules = {module_of(path): path for path in SOURCES}
    graph = {
        name: {found for found in imports_of(path) if found in modules and found != name}
        for name, path in modules.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for target in graph[name]:
                visit(target, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])


@pytest.mark.parametrize("path", SOURCES + TESTS + BENCHMARKS, ids=module_of)
def test_a_file_has_one_concept_and_bounded_length(path: Path) -> None:
    assert path.stem not in VAGUE_NAMES
    assert len(path.read_text().splitlines()) <= 400
    long_functions = {name: lines for name, lines in functions_of(path) if lines > 60}
    assert not long_functions


def test_the_median_file_is_short() -> None:
    lengths = [len(path.read_text().splitlines()) for path in SOURCES if path.name != "__init__.py"]
    assert statistics.median(lengths) <= 150


@pytest.mark.parametrize(
    "path", [path for path in TESTS if path.name.startswith("test_") and path.parent != ROOT / "tests"], ids=module_of
)
def test_tests_mirror_the_tree(path: Path) -> None:
    folder = path.parent.relative_to(ROOT / "tests")
    assert (ROOT / folder).is_dir(), "a test's folder names the folder it tests"
