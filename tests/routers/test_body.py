from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from engines.errors import InvalidValue
from routers.body import IGNORED_HEADER, ignored_header, parse


class Inner(BaseModel):
    size: Annotated[int, Field(le=9)]


class Outer(BaseModel):
    inner: Inner | list[Inner]
    ids: list[int] | list[list[int]] = []
    name: str | None = None


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({}, "inner", "Field required"),
        ({"inner": {}}, "inner.size", "Field required"),
        ({"inner": {"size": 10}}, "inner.size", "less than or equal to 9"),
        ({"inner": [{"size": 1}, {"size": 10}]}, "inner.1.size", "less than or equal to 9"),
        ({"inner": [{"size": 1}, {}]}, "inner.1.size", "Field required"),
        ({"inner": 5}, "inner", "an object"),
        ({"inner": {"size": 1}, "ids": [[1], [2, "x"]]}, "ids.1.1", "integer"),
        ({"inner": {"size": 1}, "ids": [1, "x"]}, "ids.1", "integer"),
        ({"inner": {"size": 1}, "name": 5}, "name", "string"),
    ],
)
def test_law_10_a_refusal_names_the_field_as_the_client_wrote_it(
    body: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        parse(Outer, body)
    assert refused.value.param == param
    assert message in refused.value.message
    assert "Inner" not in refused.value.message


def test_names_that_no_header_can_hold_are_counted() -> None:
    assert ignored_header([]) == {}
    assert ignored_header(["b", "a\r\nx: y", "é"]) == {IGNORED_HEADER: "?,b,?"}
