import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines import errors
from engines.errors import InvalidApiKey, InvalidValue, Overloaded, TailraceError
from processors.dialects.openai_errors import error_body


def kinds(root: type[TailraceError] = TailraceError) -> list[type[TailraceError]]:
    return [root, *(kind for sub in root.__subclasses__() for kind in kinds(sub))]


def parse_strictly(body: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(body, parse_constant=refuse)


def test_shape() -> None:
    body = error_body(InvalidValue("temperature must be 0 or more", param="temperature"))
    assert parse_strictly(body) == {
        "error": {
            "message": "temperature must be 0 or more",
            "type": "invalid_request_error",
            "param": "temperature",
            "code": "invalid_value",
        }
    }


def test_param_is_null_where_no_field_is_at_fault() -> None:
    assert parse_strictly(error_body(Overloaded("busy")))["error"]["param"] is None


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_kind_has_its_own_code_and_a_type_of_openai(kind: type[TailraceError]) -> None:
    error = parse_strictly(error_body(kind("x")))["error"]
    assert error["code"] == kind.code
    assert error["type"] in {
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "rate_limit_error",
        "server_error",
    }


def test_a_wrong_key_has_openai_code() -> None:
    assert parse_strictly(error_body(InvalidApiKey("no")))["error"]["code"] == "invalid_api_key"
    assert errors.InvalidApiKey.status == 401


@given(st.text(st.characters(codec=None)), st.none() | st.text())
def test_any_text_is_one_line_of_strict_json(message: str, param: str | None) -> None:
    body = error_body(InvalidValue(message, param=param))
    assert len(body.decode().splitlines()) == 1
    error = parse_strictly(body)["error"]
    assert error["message"] == message.encode("utf-8", "replace").decode()
    assert error["param"] == (None if param is None else param.encode("utf-8", "replace").decode())


def test_line_breaks_of_splitlines_are_escaped() -> None:
    body = error_body(InvalidValue("a\u0085b\u2028c\u2029d\ne\x1cf"))
    assert len(body.decode().splitlines()) == 1
    assert b"\\u2028" in body
