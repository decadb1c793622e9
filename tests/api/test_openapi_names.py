"""The OpenAPI document as client generators read it: names, tags, servers, licence."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.documents import node_document, public_document


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """The documents of the public and the node listener."""
    return [public_document(), node_document()]


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every operation."""
    return [operation for methods in document["paths"].values() for operation in methods.values()]


def test_operation_ids_are_readable_and_unique(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        names = [operation["operationId"] for operation in operations(document)]
        assert len(names) == len(set(names))
        assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+){0,5}", name)] == []
    named = {operation["operationId"] for operation in operations(documents[0])}
    assert named >= {
        "create_allocation", "list_allocations", "get_allocation", "release_allocation", "get_allocation_timeline",
        "hold_reservation", "confirm_reservation", "admin_list_allocations", "admin_force_release_allocation",
        "admin_put_tenant_quota", "admin_create_node_enrolment_token", "admin_adopt_node_orphan", "get_operation",
        "list_webhook_deliveries", "get_webhook_delivery", "admin_list_api_keys", "admin_delete_api_key", "get_me",
    }  # fmt: skip


def test_schemas_have_names_of_their_own_without_their_module(documents: list[dict[str, Any]]) -> None:
    """Two classes of one name would be named after the modules that they are in."""
    for document in documents:
        assert [name for name in document["components"]["schemas"] if re.match(r"[a-z_]+__", name)] == []


NO_PAGES = {"list_retention_policies"}
"""Arrays without pages: the source of `/v1/retention` fixes its shape, and the number of policies is bounded."""


def test_every_list_has_one_shape(documents: list[dict[str, Any]]) -> None:
    """A page is `items` and `next_cursor`; it takes `limit`, within bounds, and `cursor`. No other response is an array."""
    document = documents[0]
    lists, arrays = 0, set()
    for methods in document["paths"].values():
        operation = methods.get("get", {"responses": {}})
        schema = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
        if schema.get("type") == "array":
            arrays.add(operation["operationId"])
            continue
        answer = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
        parameters = {one["name"]: one["schema"] for one in operation.get("parameters", ())}
        is_list = "_list_" in f"_{operation.get('operationId')}" or "items" in answer.get("properties", {})
        if is_list or "cursor" in parameters:
            lists += 1
            assert answer["properties"]["items"]["type"] == "array", operation["operationId"]
            assert {"items", "next_cursor"} <= set(answer["required"]), operation["operationId"]
            assert {"limit", "cursor"} <= parameters.keys(), operation["operationId"]
            assert parameters["limit"]["minimum"] == 1, operation["operationId"]
            assert parameters["limit"]["maximum"] <= 1_000, operation["operationId"]
    assert arrays == NO_PAGES
    assert lists > 20


def test_every_tag_is_described(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        described = {tag["name"] for tag in document["tags"]}
        used = {tag for operation in operations(document) for tag in operation["tags"]}
        assert used == described


def test_the_document_names_server_licence_and_contact(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        assert document["servers"]
        assert document["info"]["license"]["identifier"] == "Apache-2.0"
        assert document["info"]["contact"]["name"]
