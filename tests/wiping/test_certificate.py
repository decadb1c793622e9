"""A wipe certificate proves nothing unless every signature from the root's key down holds and it names the allocation."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from node_agent.key_set import KeySetEnvelope
from node_agent.protocol import Signature
from node_agent.wiping.devices import DeviceWipe
from node_agent.wiping.statement import StatementEnvelope, make_statement, open_statement
from orchestrator.tasks.signing import TaskSigner
from orchestrator.wipes.certificate import (
    CERTIFICATE_BYTES_MAX,
    COUNTERSIGNATURE_PAYLOAD_TYPE,
    CertificateRefused,
    CountersignatureEnvelope,
    Countersigned,
    VerifiedCertificate,
    WipeCertificate,
    countersigned_payload,
    read_certificate,
    repeats_result,
    statement_digest,
    verify_certificate,
)
from tests.wiping.sites import DAY, NOW, Site, predicate_of, wiped

SITE = Site()
NODE = uuid4()
SITE.enrol(NODE)
PREDICATE = predicate_of(NODE, wiped())
ALLOCATION = PREDICATE.allocation_id


def statement(site: Site = SITE) -> StatementEnvelope:
    return StatementEnvelope.model_validate(site.sign(NODE, make_statement(PREDICATE, {})))


def certificate(
    site: Site = SITE, of: StatementEnvelope | None = None, key_set: KeySetEnvelope | None = None, **link: Any
) -> WipeCertificate:
    """A certificate as the control plane of `site` makes it; `link` replaces members of what is countersigned."""
    envelope = of or statement(site)
    opened = open_statement(envelope)
    known = {
        "statement_sha256": statement_digest(opened), "allocation_id": ALLOCATION, "node_id": NODE, "number": 1,
        "previous_sha256": None, "countersigned_at": NOW,
    }  # fmt: skip
    payload = countersigned_payload(Countersigned.model_validate({**known, **link}))
    signature = TaskSigner(site.control_key).countersign(COUNTERSIGNATURE_PAYLOAD_TYPE, payload)
    counter = CountersignatureEnvelope(payload=base64.b64encode(payload).decode(), signatures=[signature])
    return WipeCertificate(statement=envelope, countersignature=counter, key_set=key_set or site.key_set())


def refused(found: WipeCertificate, site: Site = SITE, **how: Any) -> str:
    """Why the certificate is refused."""
    with pytest.raises(CertificateRefused) as caught:
        verify_certificate(found, how.get("allocation_id", ALLOCATION), site.roots, how.get("key_set"))
    return caught.value.reason


def verified(found: WipeCertificate) -> VerifiedCertificate:
    return verify_certificate(found, ALLOCATION, SITE.roots)


def test_a_certificate_is_verified_with_the_roots_key_alone() -> None:
    found = verified(read_certificate(certificate().model_dump_json().encode()))
    assert found.predicate == PREDICATE
    assert (found.link.number, found.key_set_serial) == (1, 3)


def test_a_certificate_of_another_allocation_is_refused() -> None:
    assert refused(certificate(), allocation_id=uuid4()) == "other_allocation"


def test_a_certificate_of_another_site_is_refused() -> None:
    other = Site()
    other.enrol(NODE)
    assert refused(certificate(other)) == "key_set_untrusted"


def test_a_node_of_another_ca_is_refused() -> None:
    other = Site(root=SITE.root, control_key=SITE.control_key)
    other.enrol(NODE)
    assert refused(certificate(other, key_set=SITE.key_set())) == "node_untrusted"


def test_a_certificate_of_a_server_signs_no_statement() -> None:
    site = Site()
    site.enrol(NODE)
    site.certificates[NODE] = site.certificate(NODE, site.keys[NODE], usage=ExtendedKeyUsageOID.SERVER_AUTH)
    assert refused(certificate(site), site) == "node_untrusted"


def test_the_countersignature_is_that_of_a_key_of_the_key_set() -> None:
    other = Site(root=SITE.root, ca_key=SITE.ca_key)
    other.enrol(NODE)
    forged = certificate(other, of=statement(), key_set=SITE.key_set())
    assert refused(forged) == "countersignature_invalid"
    named = forged.countersignature.signatures[0].model_copy(update={"keyid": TaskSigner(SITE.control_key).key_id})
    renamed = forged.countersignature.model_copy(update={"signatures": [named]})
    assert refused(forged.model_copy(update={"countersignature": renamed})) == "countersignature_invalid"


@pytest.mark.parametrize("limits", [{"not_after": NOW - DAY}, {"not_before": NOW + DAY}], ids=["too-late", "too-early"])
def test_the_key_was_valid_when_it_countersigned(limits: dict[str, Any]) -> None:
    assert refused(certificate(key_set=SITE.key_set(**limits))) == "countersignature_invalid"


@pytest.mark.parametrize(
    "link",
    [{"statement_sha256": "0" * 64}, {"allocation_id": uuid4()}, {"node_id": uuid4()}],
    ids=["statement", "allocation", "node"],
)
def test_what_was_countersigned_is_this_statement(link: dict[str, Any]) -> None:
    assert refused(certificate(**link)) == "other_statement"


def test_parts_of_two_certificates_make_none() -> None:
    other = predicate_of(NODE, wiped(), allocation_id=ALLOCATION)
    swapped = StatementEnvelope.model_validate(SITE.sign(NODE, make_statement(other, {})))
    assert refused(certificate().model_copy(update={"statement": swapped})) == "other_statement"


def test_a_signature_of_another_payload_type_is_none() -> None:
    found = certificate()
    payload = base64.b64decode(found.countersignature.payload)
    as_task = TaskSigner(SITE.control_key).countersign("application/vnd.berth.task+json", payload)
    replaced = found.countersignature.model_copy(update={"signatures": [Signature(**as_task.model_dump())]})
    assert refused(found.model_copy(update={"countersignature": replaced})) == "countersignature_invalid"


def test_without_a_key_set_the_readers_counts() -> None:
    without = certificate().model_copy(update={"key_set": None})
    assert refused(without) == "key_set_missing"
    assert verify_certificate(without, ALLOCATION, SITE.roots, SITE.key_set()).predicate == PREDICATE


def test_the_readers_key_set_replaces_the_certificates() -> None:
    other = Site(root=SITE.root, ca_key=SITE.ca_key)
    assert refused(certificate(), key_set=other.key_set()) in ("node_untrusted", "countersignature_invalid")


@pytest.mark.parametrize("devices", [[], [wiped("nvme1")], [wiped(), wiped("nvme1")]], ids=["none", "other", "more"])
def test_a_result_with_other_devices_is_not_repeated(devices: list[DeviceWipe]) -> None:
    evidence = {"devices": [device.model_dump(mode="json") for device in devices]}
    stated = make_statement(PREDICATE, evidence)
    assert not repeats_result(stated, {"released": True, "hard_stopped": False, "evidence": evidence})


@cache
def document() -> str:
    return certificate().model_dump_json()


@given(st.data())
def test_a_truncated_certificate_is_refused(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(document()) - 1))
    with pytest.raises(CertificateRefused) as caught:
        read_certificate(document()[:length].encode())
    assert caught.value.reason == "malformed"


def test_a_huge_certificate_is_refused_unread() -> None:
    with pytest.raises(CertificateRefused, match="at most"):
        read_certificate(b"{" + b" " * CERTIFICATE_BYTES_MAX)
    assert len(document()) < CERTIFICATE_BYTES_MAX


@given(st.data())
def test_a_changed_certificate_proves_what_was_signed_or_nothing(data: st.DataObject) -> None:
    """Any character of the document may change: what remains verifiable is what was signed."""
    text = document()
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters(min_codepoint=32, max_codepoint=126)) + text[place + 1 :]
    try:
        found = verified(read_certificate(changed.encode()))
    except CertificateRefused:
        found = None
    assert found is None or (found.predicate, found.link) == (PREDICATE, verified(read_certificate(text.encode())).link)


def test_members_that_the_format_does_not_have_are_refused() -> None:
    with pytest.raises(CertificateRefused):
        read_certificate(json.dumps({**json.loads(document()), "note": "trust me"}).encode())
    assert read_certificate(document().encode()) == certificate_again()


def certificate_again() -> WipeCertificate:
    return WipeCertificate.model_validate_json(document())
