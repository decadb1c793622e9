"""The AsyncAPI document is valid, lists every event type, and agrees with what the relay publishes and with the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator  # type: ignore[import-untyped]

from orchestrator.log.event_kinds import Visibility
from orchestrator.log.event_types import EVENT_KINDS
from orchestrator.log.events import EventType
from outbox_relay.messages import NO_TENANT, Subjects
from tests.support.public_api import PublicApi

SPECIFICATION = Path(__file__).parent / "asyncapi_specification" / "schema-3.0.0.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "event-types.md"
TENANT = "0198c1f2-5d10-7b6f-b1a2-3c4d5e6f7081"


@pytest.fixture(scope="module")
def document(api: PublicApi) -> dict[str, Any]:
    """The document, requested without a key."""
    answer = api.admin.http.get("/asyncapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    told: dict[str, Any] = answer.json()
    return told


def test_it_is_an_asyncapi_document(document: dict[str, Any]) -> None:
    specification = json.loads(SPECIFICATION.read_text())
    errors = [error.message for error in Draft7Validator(specification).iter_errors(document)]
    assert errors == []
    broken = {**document, "operations": {"publish": {"action": "shout"}}}
    assert list(Draft7Validator(specification).iter_errors(broken)), "the schema can refuse"


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = re.findall(r'"\$ref": ?"#/([^"]+)"', json.dumps(document))
    assert references
    for reference in references:
        found: Any = document
        for part in reference.split("/"):
            found = found[part]


def test_every_type_is_documented_once(document: dict[str, Any]) -> None:
    assert set(EVENT_KINDS) == set(EventType)
    assert set(document["components"]["messages"]) == {event.value for event in EventType}
    for name, audience in (("tenant", Visibility.TENANT), ("operator", Visibility.OPERATOR)):
        told = set(document["channels"][name]["messages"])
        assert {event.value for event, kind in EVENT_KINDS.items() if kind.visibility is audience} <= told
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_addresses_are_the_subjects_of_the_relay(document: dict[str, Any]) -> None:
    subjects = Subjects()
    for event, kind in EVENT_KINDS.items():
        name = kind.visibility.value
        address = document["channels"][name]["address"]
        wanted = address.replace("{tenant_id}", TENANT).replace("{event_type}", event.value)
        tenant = TENANT if kind.visibility is Visibility.TENANT else None
        assert subjects.of(tenant, event.value) == wanted
    assert f".{NO_TENANT}." in document["channels"]["operator"]["address"]


def test_the_page_has_the_same_fields(document: dict[str, Any]) -> None:
    """Each type has its row in docs/reference/event-types.md, whose data column names every field that the type always has."""
    rows: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        cells = line.split(" | ")
        if line.startswith("| `") and len(cells) == 3:
            rows |= dict.fromkeys(re.findall(r"`([a-z_.]+)`", cells[0]), cells[2])
    for event, kind in EVENT_KINDS.items():
        assert event.value in rows, event
        if "the same" not in rows[event.value]:
            untold = [name for name in kind.required if f"`{name}`" not in rows[event.value]]
            assert untold == [], event


def test_every_channel_names_its_servers_and_tags(document: dict[str, Any]) -> None:
    """Servers have a security scheme; the five channels cover NATS, the feed, the socket and webhooks."""
    assert set(document["channels"]) == {"tenant", "operator", "notifications", "feed", "webhooks"}
    assert {of["protocol"] for of in document["servers"].values()} == {"nats", "https", "wss"}
    assert all(of["security"] for of in document["servers"].values())
    declared = {tag["name"] for tag in document["info"]["tags"]}
    for channel in document["channels"].values():
        assert channel["servers"]
        assert {tag["name"] for tag in channel["tags"]} <= declared
    used = {operation["channel"]["$ref"].rpartition("/")[2] for operation in document["operations"].values()}
    assert used == set(document["channels"])
    assert all(operation["tags"] for operation in document["operations"].values())
    told = set(document["channels"]["webhooks"]["messages"])
    assert told == {*(event.value for event in EventType), "webhook.test"}
