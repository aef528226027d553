"""Pages and code say the same."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.factory import create_app
from app.settings import ENV_PREFIX, Settings, flag_of, variable_of
from deploy.docs_blocks import ROUTES
from routers.schemas.generate import GenerateSampling
from tests.markdown import PAGES, ROOT, code_spans, headings, name_of, prose, rows, section

API = ROOT / "docs" / "api.md"
OUTSIDE = ("http://", "https://", "mailto:")
FOLDERS = ("app", "routers", "processors", "engines", "tests", "docs", "deploy", "benchmarks")
OTHER_FLAGS = {"--help", "--version"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(OUTSIDE):
            continue
        path, _, anchor = target.partition("#")
        place = page.parent / path if path else page
        assert place.exists(), target
        if anchor:
            assert anchor in headings(place), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    for span in code_spans(prose(page)):
        if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]*", span):
            assert (ROOT / span).exists(), span


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_that_are_named_exist(page: Path) -> None:
    flags = {flag_of(name) for name in Settings.model_fields} | OTHER_FLAGS
    flags |= {flag.replace("--", "--no-", 1) for flag in flags}
    variables = {variable_of(name) for name in Settings.model_fields}
    text = page.read_text()
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= flags
    assert set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]+\b", text)) <= variables


def routes_of_the_app() -> Iterator[str]:
    for path, operations in create_app(Settings()).openapi()["paths"].items():
        yield from (f"{method.upper()} {path}" for method in operations)


def test_every_route_is_in_the_api_page_and_no_other() -> None:
    named = {span for cells in rows(prose(API)) for span in code_spans(cells[0]) if re.match(r"(GET|POST) /", span)}
    assert named == set(routes_of_the_app())


def test_the_used_fields_are_those_of_the_models() -> None:
    told: dict[str, set[str]] = {route: set() for route in ROUTES}
    for heading, default in (("OpenAI's routes", "both"), ("SGLang's route", "generate")):
        for fields, *cells in rows(section(API.read_text(), heading)):
            named = cells[0] if default == "both" else default
            for route in ("completions", "chat") if named == "both" else (named,):
                told[route] |= set(code_spans(fields))
    assert told == {route: set(model.model_fields) for route, model in ROUTES.items()}


def test_the_sampling_parameters_are_those_of_the_model() -> None:
    told = {span for cells in rows(section(API.read_text(), "sampling_params")) for span in code_spans(cells[0])}
    assert told == set(GenerateSampling.model_fields)
