"""The OpenAPI document by the standard's own schema, and what generators of clients need of its schemas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openapi_spec_validator import OpenAPIV31SpecValidator

from orchestrator.log.event_types import EVENT_KINDS
from orchestrator.webhooks.rules import document_of_test
from tests.api.calling import signing_request, ssh_key
from tests.api.documents import node_document, public_document

ID = "0198c1f2-5d10-7b6f-b1a2-3c4d5e6f7081"
STANDARD_FORMATS = frozenset({"uuid", "date-time", "date", "uri", "int64"})


@pytest.fixture(scope="module", params=["public", "node"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The document of one listener."""
    return public_document() if request.param == "public" else node_document()


@pytest.fixture(scope="module")
def public() -> dict[str, Any]:
    """The document of the public listener."""
    return public_document()


def nested(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the document with its path."""
    if isinstance(value, dict):
        yield path, value
        for name, member in value.items():
            yield from nested(member, f"{path}/{name}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from nested(member, f"{path}/{index}")


def types_of(schema: dict[str, Any]) -> set[str]:
    """The JSON types that a schema names."""
    named = schema.get("type", [])
    return {named} if isinstance(named, str) else {name for name in named if isinstance(name, str)}


@pytest.mark.full
def test_the_document_is_valid(document: dict[str, Any]) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    broken = {**document, "info": {"title": "no version"}}
    assert list(OpenAPIV31SpecValidator(broken).iter_errors()), "the validator can refuse"


def test_maps_name_their_values_where_generators_read_them(public: dict[str, Any]) -> None:
    assert [path for path, schema in nested(public) if "patternProperties" in schema] == []
    labels = public["components"]["schemas"]["CreateAllocation"]["properties"]["labels"]
    assert labels["additionalProperties"]["maxLength"] == 255
    validator = Draft202012Validator(labels)
    assert validator.is_valid({"team": "red"})
    assert not validator.is_valid({"no space": "red"})
    assert not validator.is_valid({"team": 7})


def test_no_schema_has_a_member_of_its_own_name(public: dict[str, Any]) -> None:
    schemas = public["components"]["schemas"]
    assert [
        name
        for name, schema in schemas.items()
        if any(member.replace("_", "") == name.lower() for member in schema.get("properties", ()))
    ] == []


def test_every_number_has_its_bounds(document: dict[str, Any]) -> None:
    for path, schema in nested(document):
        if "integer" in types_of(schema):
            assert {"minimum", "maximum"} <= schema.keys(), path
        elif "number" in types_of(schema):
            assert {"minimum", "exclusiveMinimum"} & schema.keys(), path


def test_a_lifetime_outside_its_bounds_is_not_schema_valid(public: dict[str, Any]) -> None:
    for name in ("HoldNamed", "HoldGpus"):
        validator = Draft202012Validator(public["components"]["schemas"][name]["properties"]["ttl_seconds"])
        assert [seconds for seconds in (-3_995, 0, 1, 3_600, 3_601) if validator.is_valid(seconds)] == [1, 3_600]


def test_custom_formats_have_a_pattern(document: dict[str, Any]) -> None:
    assert [
        path
        for path, schema in nested(document)
        if isinstance(schema.get("format"), str)
        and schema["format"] not in STANDARD_FORMATS
        and "pattern" not in schema
    ] == []


def excludes(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether `one` requires a member, not null, that `other` forbids or allows as null only."""
    for name in one["required"]:
        allowed = other["properties"].get(name)
        if allowed is None and other.get("additionalProperties") is False:
            return True
        if allowed is not None and types_of(allowed) == {"null"} and "null" not in types_of(one["properties"][name]):
            return True
    return False


def test_the_variants_of_one_of_do_not_overlap(public: dict[str, Any]) -> None:
    schemas = public["components"]["schemas"]
    found = [(path, schema) for path, schema in nested(public) if "oneOf" in schema]
    assert len(found) > 5
    for path, schema in found:
        variants = [schemas[variant["$ref"].rpartition("/")[2]] for variant in schema["oneOf"]]
        tag = schema.get("discriminator", {}).get("propertyName")
        if tag is None:
            assert all(excludes(a, b) or excludes(b, a) for a, b in combinations(variants, 2)), path
        else:
            assert all(tag in variant["required"] for variant in variants), path
            tags = [variant["properties"][tag]["const"] for variant in variants]
            assert len(tags) == len(set(tags)), path


def test_webhooks_describe_every_event(public: dict[str, Any]) -> None:
    mappings = [
        entry["post"]["requestBody"]["content"]["application/cloudevents+json"]["schema"]["discriminator"]["mapping"]
        for entry in public["webhooks"].values()
    ]
    described = [of_type for mapping in mappings for of_type in mapping]
    assert sorted(described) == sorted([*(f"berth.{event}" for event in EVENT_KINDS), "berth.webhook.test"])
    schemas = public["components"]["schemas"]
    for mapping in mappings:
        for of_type, reference in mapping.items():
            assert schemas[reference.rpartition("/")[2]]["properties"]["type"] == {"const": of_type}
    message = dict(document_of_test(ID, "2026-03-01T09:30:00.123456Z", ID))
    assert list(Draft202012Validator(schemas["WebhookTestEvent"]).iter_errors(message)) == []
    assert list(Draft202012Validator(schemas["WebhookTestEvent"]).iter_errors({**message, "type": "berth.other"}))


def test_asyncapi_is_listed(public: dict[str, Any]) -> None:
    response = public["paths"]["/asyncapi.json"]["get"]["responses"]["200"]
    assert response["content"]["application/json"]["schema"] == {"type": "object"}


def test_patterns_of_custom_formats_accept_what_the_api_accepts(public: dict[str, Any]) -> None:
    schemas = public["components"]["schemas"]
    for schema, member, accepted, refused in (
        ("AddSshKey", "public_key", ssh_key(), "ssh-dss AAAA user@example"),
        ("Enrol", "csr_pem", signing_request(), "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"),
        ("CreateWebhook", "url", "HTTPS://hooks.example.com:8443/a?b={c}@d", "https://user@hooks.example.com/"),
        ("CreateWebhook", "url", "https://[2606:4700::1111]?a", "https://hooks.example.com/#fragment"),
    ):
        validator = Draft202012Validator(schemas[schema]["properties"][member])
        assert validator.is_valid(accepted), (schema, accepted)
        assert not validator.is_valid(refused), (schema, refused)
