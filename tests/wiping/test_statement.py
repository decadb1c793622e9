"""A wipe statement is accepted only as its node signed it, and it claims no more than its devices prove."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node_agent.wiping.devices import DeviceWipe, WipeLevel
from node_agent.wiping.statement import (
    StatementEnvelope,
    StatementRejected,
    WipeStatement,
    digest_of,
    make_statement,
    open_statement,
)
from tests.wiping.sites import DAY, NOW, Site, predicate_of, wiped

SITE = Site()
NODE = uuid4()
SITE.enrol(NODE)
EVIDENCE: dict[str, Any] = {"devices": [wiped().model_dump(mode="json")], "guest": {"ran": True}}

DEVICES = st.lists(
    st.builds(
        DeviceWipe, device=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
        kind=st.sampled_from(["disk", "gpu", "memory", "firmware"]), serial=st.none() | st.just("S"),
        method=st.just("overwrite"), level=st.sampled_from(WipeLevel), proven=st.just(True),
        checked=st.dictionaries(st.text(max_size=5).filter(lambda text: "\0" not in text), st.integers(0, 9), max_size=3),
    ),
    max_size=5, unique_by=lambda device: device.device,
)  # fmt: skip


def signed(**members: Any) -> dict[str, Any]:
    return SITE.sign(NODE, make_statement(predicate_of(NODE, wiped(), **members), EVIDENCE))


@given(DEVICES)
def test_a_statement_says_what_was_signed(devices: list[DeviceWipe]) -> None:
    statement = make_statement(predicate_of(NODE, *devices), EVIDENCE)
    opened = open_statement(StatementEnvelope.model_validate(SITE.sign(NODE, statement)))
    assert opened.statement == statement
    assert opened.predicate.verdict == ("wiped" if devices else "nothing_found")
    order = [level.value for level in WipeLevel]
    assert opened.predicate.level == min((device.level for device in devices), key=order.index, default=None)
    assert [subject.name for subject in statement.subject[1:]] == [f"device/{device.device}" for device in devices]


def test_it_is_an_in_toto_statement() -> None:
    document = json.loads(base64.b64decode(signed()["payload"]))
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["subject"][0]["digest"] == {"sha256": digest_of(EVIDENCE)}
    assert set(document) == {"_type", "subject", "predicateType", "predicate"}


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_byte_of_what_is_signed_can_be_changed(place: int, change: int) -> None:
    envelope = signed()
    payload = bytearray(base64.b64decode(envelope["payload"]))
    payload[place % len(payload)] ^= change
    envelope["payload"] = base64.b64encode(payload).decode()
    with pytest.raises(StatementRejected) as rejected:
        open_statement(StatementEnvelope.model_validate(envelope))
    assert rejected.value.reason == "bad_signature"


def test_an_ec_key_of_an_earlier_berth_signs_too() -> None:
    site, node = Site(), uuid4()
    site.enrol(node, key=ec.generate_private_key(ec.SECP256R1()))
    envelope = site.sign(node, make_statement(predicate_of(node, wiped()), EVIDENCE))
    assert open_statement(StatementEnvelope.model_validate(envelope)).predicate.node_id == node


def test_a_statement_about_another_node_is_rejected() -> None:
    other = make_statement(predicate_of(uuid4(), wiped()), EVIDENCE)
    with pytest.raises(StatementRejected) as rejected:
        open_statement(StatementEnvelope.model_validate(SITE.sign(NODE, other)))
    assert rejected.value.reason == "other_node"


@pytest.mark.parametrize("ended_at", [NOW - 2 * DAY, NOW + 2 * DAY], ids=["before", "after"])
def test_the_certificate_was_valid_when_the_release_ended(ended_at: Any) -> None:
    with pytest.raises(StatementRejected) as rejected:
        open_statement(StatementEnvelope.model_validate(signed(ended_at=ended_at)))
    assert rejected.value.reason == "certificate_not_valid"


def test_another_key_does_not_sign_for_the_certificate() -> None:
    thief = Site()
    thief.keys[NODE], thief.certificates[NODE] = Ed25519PrivateKey.generate(), SITE.certificates[NODE]
    envelope = thief.sign(NODE, make_statement(predicate_of(NODE, wiped()), EVIDENCE))
    envelope["signatures"][0]["keyid"] = signed()["signatures"][0]["keyid"]
    with pytest.raises(StatementRejected) as rejected:
        open_statement(StatementEnvelope.model_validate(envelope))
    assert rejected.value.reason == "bad_signature"


@pytest.mark.parametrize(
    "change",
    [
        {"certificate": ""}, {"certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
        {"sig": "!"}, {"sig": ""}, {"sig": base64.b64encode(b"\0" * 64).decode()}, {"keyid": "0" * 64},
    ],
    ids=["no-certificate", "certificate-of-nothing", "no-base64", "empty", "zeros", "other-key-id"],
)  # fmt: skip
def test_an_envelope_that_cannot_be_read_is_rejected(change: dict[str, str]) -> None:
    envelope = signed()
    envelope["signatures"][0].update(change)
    with pytest.raises(StatementRejected):
        open_statement(StatementEnvelope.model_validate(envelope))
    assert change


NOT_PROVEN = wiped().model_copy(update={"proven": False})


@pytest.mark.parametrize(
    "members",
    [
        {"devices": [NOT_PROVEN]}, {"devices": [wiped(), wiped()]}, {"verdict": "nothing_found"}, {"level": "destroy"},
        {"level": None}, {"devices": [], "level": None},
    ],
    ids=["unproven", "twice", "nothing-found", "higher-level", "no-level", "wiped-without-devices"],
)  # fmt: skip
def test_a_statement_claims_no_more_than_its_devices_prove(members: dict[str, Any]) -> None:
    claimed = {**predicate_of(NODE, wiped()).model_dump(), **members}
    with pytest.raises(ValidationError):
        type(predicate_of(NODE)).model_validate(claimed)
    assert predicate_of(NODE, wiped()).verdict == "wiped"


def test_the_subjects_are_those_of_the_devices() -> None:
    written = make_statement(predicate_of(NODE, wiped("a"), wiped("b")), EVIDENCE).model_dump(
        mode="json", by_alias=True
    )
    for altered in (written["subject"][:-1], written["subject"][1:], written["subject"][::-1]):
        with pytest.raises(ValidationError):
            WipeStatement.model_validate({**written, "subject": altered})
    assert WipeStatement.model_validate(written)
