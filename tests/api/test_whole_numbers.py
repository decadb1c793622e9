"""A whole number may have a fraction of zero, as in JSON Schema, wherever a request has an integer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

import orchestrator.app  # noqa: F401 - the requests of every noun are defined
from orchestrator.http.fields import Request


def requests(base: type[Request] = Request) -> Iterator[type[Request]]:
    """Every type of request."""
    for found in base.__subclasses__():
        yield found
        yield from requests(found)


def integers() -> Iterator[tuple[type[Request], str, int]]:
    """Each field that is an integer, or may be one, with the least value that it takes."""
    for model in requests():
        for name, schema in model.model_json_schema().get("properties", {}).items():
            for one in (schema, *schema.get("anyOf", ())):
                if one.get("type") == "integer":
                    yield model, name, int(one.get("minimum", 1))


def errors_of(model: type[Request], content: dict[str, float]) -> set[tuple[object, str]]:
    """Field and kind of each error."""
    try:
        model.model_validate(content)
    except ValidationError as refused:
        return {(found["loc"][0], found["type"]) for found in refused.errors() if found["loc"]}
    return set()


CASES = list(integers())


def test_there_are_integers() -> None:
    assert {name for _, name, _ in CASES} >= {"gpus", "slot", "ttl_seconds", "timeout_seconds"}


@pytest.mark.parametrize(
    ("model", "name", "least"), CASES, ids=[f"{model.__name__}.{name}" for model, name, _ in CASES]
)
def test_an_integer_may_be_written_with_a_fraction_of_zero(model: type[Request], name: str, least: int) -> None:
    assert not {kind for field, kind in errors_of(model, {name: float(least)}) if field == name and "int" in kind}
