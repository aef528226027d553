import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from deploy.lock import closure, needed

ROOT = Path(__file__).parent.parent.parent


def pins_of(lock: str) -> dict[str, Version]:
    """Name -> version of a lock's lines."""
    lines = [line for line in (ROOT / lock).read_text().splitlines() if not line.startswith("#")]
    pins = [Requirement(line) for line in lines]
    return {pin.name: Version(str(pin.specifier).removeprefix("==")) for pin in pins}


@pytest.mark.parametrize(
    ("roots", "locks"),
    [("runtime", ["requirements.lock"]), ("test", ["requirements.lock", "requirements-test.lock"])],
)
def test_the_locks_pin_what_pyproject_declares(roots: str, locks: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["dependencies"] if roots == "runtime" else project["optional-dependencies"]["test"]
    pins = {name: version for lock in locks for name, version in pins_of(lock).items()}
    for requirement in map(Requirement, declared):
        assert pins[requirement.name] in requirement.specifier


def test_the_locks_share_no_package_and_are_what_is_installed() -> None:
    runtime, test = pins_of("requirements.lock"), pins_of("requirements-test.lock")
    assert not runtime.keys() & test.keys()
    for name, version in (runtime | test).items():
        assert Version(Version(distribution(name).version).public) == version


def test_a_closure_follows_dependencies_and_drops_local_versions() -> None:
    pins = closure(["sse-starlette>=3"])
    assert {"sse-starlette", "starlette", "anyio", "idna"} <= pins.keys()
    assert "uvicorn" not in pins, "an extra that was not asked for"
    assert "uvicorn" in closure(["sse-starlette[uvicorn]"])
    assert "+" not in closure(["torch"])["torch"]


def test_a_marker_decides_with_its_extra() -> None:
    assert needed(Requirement("a"), "")
    assert not needed(Requirement('a; extra == "x"'), "")
    assert needed(Requirement('a; extra == "x"'), "x")
    assert not needed(Requirement('a; python_version < "3"'), "")
