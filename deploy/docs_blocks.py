"""Write the parts of docs/ that follow from the code: `make docs`.

A page holds a generated part between `<!-- make docs: NAME -->` and `<!-- end -->`; what stands around it is written by
hand. docs/openapi.json is generated as a whole.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

from app.factory import create_app
from app.metrics_table import METRICS, Kind
from app.settings import Settings, flag_of, variable_of
from engines.errors import RequestError, ServiceError, TailraceError
from routers.schemas.chat import ChatCompletionRequest
from routers.schemas.completions import CompletionRequest
from routers.schemas.generate import GenerateRequest
from routers.schemas.ignored import IgnoredFields

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OPENAPI = DOCS / "openapi.json"
ROUTES: Mapping[str, type[IgnoredFields]] = {
    "completions": CompletionRequest,
    "chat": ChatCompletionRequest,
    "generate": GenerateRequest,
}

_BLOCK = re.compile(r"(<!-- make docs: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def settings_table() -> str:
    """Every option of the server."""
    return table(["Flag", "Variable", "Default", "What it is"], map(_option, Settings.model_fields))


def _option(name: str) -> Iterator[str]:
    field = Settings.model_fields[name]
    flag = flag_of(name)
    yield f"`{flag}`" + (f", `{flag.replace('--', '--no-')}`" if field.annotation is bool else "")
    yield f"`{variable_of(name)}`"
    yield "unset" if field.default is None else "off" if field.default is False else f"`{field.default}`"
    values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    yield (field.description or "") + (f" One of {', '.join(f'`{value}`' for value in values)}." if values else "")


def metrics_table() -> str:
    """Every metric of ours, as it is exported."""
    rows = (
        (
            f"`{metric.full_name}{'_total' if metric.kind is Kind.COUNTER else ''}`",
            metric.kind.value,
            f"`{metric.label}`" if metric.label else "",
            metric.help,
        )
        for metric in METRICS
    )
    return table(["Name", "Kind", "Label", "What it is"], rows)


def errors_table() -> str:
    """Every error that a client may get, in the order of the error tree."""
    kinds = (kind for kind in descendants(TailraceError) if kind not in {RequestError, ServiceError})
    rows = ((str(kind.status), f"`{kind.type}`", f"`{kind.code}`", _first_line(kind)) for kind in kinds)
    return table(["Status", "`type`", "`code`", "When"], rows)


def descendants(kind: type[TailraceError]) -> Iterator[type[TailraceError]]:
    """All classes below one, parents first."""
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


def _first_line(kind: type[TailraceError]) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def refused_table() -> str:
    """The known fields of the generation routes that are refused by name, and the values that pass."""
    places: dict[tuple[str, str], list[str]] = {}
    for route, model in ROUTES.items():
        for name, neutral in model.UNSUPPORTED.items():
            passes = ", ".join(f"`{json.dumps(value)}`" for value in neutral) or "none but `null`"
            places.setdefault((name, passes), []).append(route)
    rows = ((f"`{name}`", ", ".join(routes), passes) for (name, passes), routes in places.items())
    return table(["Field", "Route", "What passes"], rows)


def ignored_table() -> str:
    """The known fields of the generation routes that have no effect and are reported."""
    names = sorted({name for model in ROUTES.values() for name in model.INFORMATIVE})
    rows = (
        (f"`{name}`", ", ".join(route for route, model in ROUTES.items() if name in model.INFORMATIVE))
        for name in names
    )
    return table(["Field", "Route"], rows)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "settings": settings_table,
    "metrics": metrics_table,
    "errors": errors_table,
    "refused": refused_table,
    "ignored": ignored_table,
}


def filled(page: str) -> str:
    """The page with its generated parts as the code has them now. KeyError for a name that is none of BLOCKS."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]]()}\n{match[3]}", page)


def openapi() -> str:
    """The schema of the routes; its version is pyproject's, whether or not the package is installed."""
    schema = create_app(Settings()).openapi()
    schema["info"]["version"] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every page and the schema."""
    for path in sorted(DOCS.rglob("*.md")):
        path.write_text(filled(path.read_text()))
    OPENAPI.write_text(openapi())


if __name__ == "__main__":
    main()
