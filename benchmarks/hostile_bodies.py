"""Bodies made from a request's JSON schema, as costly to refuse as a body can be: many items, members, entries, long text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
DEPTH_MAX = 6


def write_bodies(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Method, path and JSON schema of each write with a body in an OpenAPI document."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                yield method.upper(), path, body["schema"]


def resolved(document: Schema, schema: Schema) -> Schema:
    """The schema that a reference names."""
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def variants(document: Schema, schema: Schema) -> Iterator[Schema]:
    """The schemas that a value may have, without unions and references."""
    schema = resolved(document, schema)
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if not inner:
        yield schema
    for one in inner:
        yield from variants(document, one)


def subschemas(document: Schema, schema: Schema, depth: int = 0) -> Iterator[Schema]:
    """Every schema in this one, itself included."""
    for one in variants(document, schema):
        yield one
        if depth < DEPTH_MAX:
            for inner in (*one.get("properties", {}).values(), one.get("items"), one.get("additionalProperties")):
                if isinstance(inner, dict):
                    yield from subschemas(document, inner, depth + 1)


def hostile_values(document: Schema, schema: Schema, count: int, depth: int = 0) -> Iterator[Any]:
    """Values with `count` surplus parts somewhere, each place of the schema in turn."""
    for one in variants(document, schema):
        kind = one.get("type")
        if kind == "object" and depth < DEPTH_MAX:
            constants = {name: inner["const"] for name, inner in one.get("properties", {}).items() if "const" in inner}
            yield {**constants, **{f"{number:x}": 0 for number in range(count)}}
            for name, inner in one.get("properties", {}).items():
                for value in hostile_values(document, inner, count, depth + 1):
                    yield {**constants, name: value}
        elif kind == "array" and depth < DEPTH_MAX:
            yield [0] * count
            for value in hostile_values(document, one["items"], count, depth + 1):
                yield [value]
            most = min(one.get("maxItems", count), count)
            for value in hostile_values(document, one["items"], max(1, count // most), depth + 1):
                yield [value] * most
        elif kind == "string":
            yield "\x01" * count
