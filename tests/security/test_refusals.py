"""A refusal costs no more than an acceptance: the errors of a body are bounded, whatever the body is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from pydantic import TypeAdapter, ValidationError

from benchmarks.hostile_bodies import hostile_values, subschemas, write_bodies
from orchestrator import app as application
from orchestrator.edge.body_values import VALUES_MAX, BodyValues
from orchestrator.problems import TooLarge
from orchestrator.settings import Settings

ERRORS_BUILT_MAX = 300
"""Of one body: those of one item of a long list, or of each item of a short one."""
SURPLUS = 5_000


def applications() -> Iterator[FastAPI]:
    """The applications with routes that accept bodies."""
    services = application.build_services(Settings(database_url="postgresql://berth@127.0.0.1:1/none"))
    yield application.public_application(services)
    yield application.node_application(services)


@pytest.fixture(scope="module")
def served() -> list[tuple[FastAPI, dict[str, Any]]]:
    return [(app, app.openapi()) for app in applications()]


def test_every_list_and_map_of_a_request_has_a_bound(served: list[tuple[FastAPI, dict[str, Any]]]) -> None:
    seen = 0
    for _, document in served:
        for method, path, schema in write_bodies(document):
            for one in subschemas(document, schema):
                seen += one.get("type") in ("array", "object")
                if one.get("type") == "array":
                    assert "maxItems" in one, f"{method} {path}: {one}"
                if isinstance(one.get("additionalProperties"), dict):
                    assert "maxProperties" in one, f"{method} {path}: {one}"
    assert seen > 50


def body_validators(app: FastAPI) -> dict[tuple[str, str], TypeAdapter[Any]]:
    """What validates the bodies, by method and path."""
    found: dict[tuple[str, str], TypeAdapter[Any]] = {}
    for context in iter_route_contexts(app.routes):
        field: Any = getattr(context, "body_field", None)
        for method in context.methods or () if field is not None else ():
            body: Any = Annotated[field.field_info.annotation, field.field_info]
            found[method, str(context.path)] = TypeAdapter(body)
    return found


def errors_of(validator: TypeAdapter[Any], value: Any) -> int:
    """How many errors a value is refused with."""
    try:
        validator.validate_python(value)
    except ValidationError as error:
        return error.error_count()
    return 0


def test_no_body_builds_more_than_a_few_errors(served: list[tuple[FastAPI, dict[str, Any]]]) -> None:
    refused = 0
    for app, document in served:
        validators = body_validators(app)
        for method, path, schema in write_bodies(document):
            for value in hostile_values(document, schema, SURPLUS):
                errors = errors_of(validators[method, path], value)
                refused += errors > 0
                assert errors <= ERRORS_BUILT_MAX, f"{method} {path}: {str(value)[:200]}"
    assert refused > 200


def counted(*pieces: bytes, values_max: int = VALUES_MAX) -> None:
    """Count a body in pieces. Raises `TooLarge`."""
    values = BodyValues(values_max)
    for number, piece in enumerate(pieces):
        values.add(piece, last=number == len(pieces) - 1)


@pytest.mark.parametrize(
    "value", [[0] * 10_001, {str(number): 0 for number in range(10_001)}, [[0]] * 5_001, [{}] * 5_001, ["a"] * 30_000]
)
def test_a_body_of_more_values_than_the_bound_is_refused(value: Any) -> None:
    text = json.dumps(value).encode()
    with pytest.raises(TooLarge):
        counted(text)
    with pytest.raises(TooLarge):
        counted(text[:5_000], text[5_000:], b"")


@pytest.mark.parametrize(
    "value", ["," * 60_000, '[{",\\"' * 10_000, "\\" * 30_001, [0] * 9_999, {"a": "{\\" * 20_000, "b": [1]}]
)
def test_a_value_inside_a_text_is_no_value(value: Any) -> None:
    text = json.dumps(value).encode()
    counted(text)
    counted(*(text[start : start + 1_000] for start in range(0, len(text), 1_000)))
    assert json.loads(text) == value
