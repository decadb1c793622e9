"""The certificate of a machine is its deploy system's, valid for minutes; it claims no more than the report proves."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node_agent.key_set import KeySet, read_unverified, sign_key_set
from node_agent.wiping.devices import DeviceWipe
from node_agent.wiping.machine import MachineWipe, UefiComparison
from node_agent.wiping.machine_reports import NOT_COMPARED, UEFI, devices_of, machine_of
from node_agent.wiping.statement import (
    StatementEnvelope,
    StatementRejected,
    WipePredicate,
    digest_of,
    lowest_level,
    make_statement,
    open_statement,
)
from node_agent.wire.deploy_tasks import MetalWipeReport
from node_agent.wire.topology import Gap
from orchestrator.wipes.certificate import (
    CertificateRefused,
    Countersigned,
    VerifiedCertificate,
    WipeCertificate,
    countersigned_payload,
    machine_claims,
    read_certificate,
    statement_digest,
    verify_certificate,
)
from tests.wiping.machines import (
    ALLOCATION,
    CERTIFICATE,
    DISKS,
    EPOCH,
    KEY,
    NODE,
    ORDER,
    PREDICATE,
    REPORT,
    SITE,
    certificate,
    predicate,
    signed,
)
from tests.wiping.sites import DAY, HOUR, MINUTE, NOW, Site, crafted, issued, predicate_of, wiped

LONG_AGO = NOW - 10 * HOUR
TEXT = certificate().model_dump_json()


def verified(found: WipeCertificate, allocation_id: UUID = ALLOCATION) -> VerifiedCertificate:
    return verify_certificate(read_certificate(found.model_dump_json().encode()), allocation_id, SITE.roots)


def refused(found: WipeCertificate, allocation_id: UUID = ALLOCATION) -> str:
    """Why the certificate is refused."""
    with pytest.raises(CertificateRefused) as caught:
        verified(found, allocation_id)
    return caught.value.reason


def test_it_is_verified_with_the_roots_key_alone() -> None:
    found = verified(certificate())
    assert found.predicate == PREDICATE
    assert [(one.serial, one.level) for one in found.predicate.devices] == [("S1", "clear"), ("S2", "purge")]
    assert found.predicate.level == "clear", "the lowest"
    assert statement_digest(open_statement(signed())) == found.link.statement_sha256


def test_it_is_verified_long_after_the_certificate_of_minutes_has_ended() -> None:
    old = SITE.deploy_certificate(NODE, EPOCH, KEY, LONG_AGO, LONG_AGO + HOUR)
    found = verified(certificate(signed(predicate(allocation_id=ALLOCATION, ended_at=LONG_AGO + MINUTE), old)))
    assert found.predicate.ended_at == LONG_AGO + MINUTE


@pytest.mark.parametrize(
    "ended_at", [LONG_AGO - MINUTE, LONG_AGO + HOUR + MINUTE, NOW], ids=["before", "just-after", "now"]
)
def test_a_deploy_system_signs_nothing_outside_its_time(ended_at: dt.datetime) -> None:
    old = SITE.deploy_certificate(NODE, EPOCH, KEY, LONG_AGO, LONG_AGO + HOUR)
    found = certificate(signed(predicate(allocation_id=ALLOCATION, ended_at=ended_at), old))
    assert refused(found) == "statement_invalid"


def test_only_the_ca_of_deploy_systems_vouches_for_one() -> None:
    uri = f"spiffe://berth.test/node/{NODE}/deploy/{EPOCH}"
    named = issued(uri, SITE.ca.subject, SITE.ca_key, KEY, NOW - HOUR, NOW + HOUR, ExtendedKeyUsageOID.CLIENT_AUTH)
    assert refused(certificate(signed(certificate=named))) == "node_untrusted"
    stranger = Site().deploy_certificate(NODE, EPOCH, KEY)
    assert refused(certificate(signed(certificate=stranger))) == "node_untrusted"


def test_a_key_set_without_cas_of_deploy_systems_verifies_none() -> None:
    content = read_unverified(SITE.key_set()).model_copy(update={"deploy_cas": []})
    assert refused(certificate(key_set=sign_key_set(content, SITE.root))) == "node_untrusted"
    assert "deploy_cas" not in content.model_dump_json(), "agents of earlier versions read such a set"
    assert KeySet.model_validate_json(content.model_dump_json()) == content


@pytest.mark.parametrize(("node", "epoch"), [(NODE, EPOCH + 1), (uuid4(), EPOCH)], ids=["other-epoch", "other-node"])
def test_another_deploy_system_signs_nothing_for_it(node: UUID, epoch: int) -> None:
    other = SITE.deploy_certificate(node, epoch, KEY)
    assert refused(certificate(signed(certificate=other))) == "statement_invalid"


def test_a_deploy_system_signs_no_release_of_a_node_and_a_node_none_of_a_machine() -> None:
    of_node = predicate_of(NODE, wiped(), allocation_id=ALLOCATION)
    assert refused(certificate(signed(of_node), machine=None)) == "statement_invalid"
    nodes = SITE.certificate(NODE, KEY)
    assert refused(certificate(signed(certificate=nodes))) == "statement_invalid"


@pytest.mark.parametrize("fault", ["duplicate", "name_type"])
def test_a_certificate_whose_extensions_cannot_be_read_is_refused(fault: str) -> None:
    bad = crafted(CERTIFICATE, KEY, fault)
    assert refused(certificate(signed(certificate=bad))) == "statement_invalid"
    with pytest.raises(StatementRejected) as rejected:
        open_statement(signed(certificate=bad))
    assert rejected.value.reason == "other_node"


def test_a_replay_for_another_allocation_is_refused() -> None:
    assert refused(certificate(), uuid4()) == "other_allocation"
    other = predicate(allocation_id=uuid4())
    swapped = certificate().model_copy(update={"statement": signed(other)})
    assert refused(swapped, other.allocation_id) == "other_statement"


def test_a_certificate_of_another_node_is_refused() -> None:
    assert refused(certificate(node_id=uuid4())) == "other_statement"


def test_what_was_found_on_the_machine_is_countersigned() -> None:
    assert refused(certificate(machine=None)) == "other_statement"
    site_of_node = Site(root=SITE.root, control_key=SITE.control_key)
    site_of_node.enrol(NODE)
    of_node = predicate_of(NODE, wiped(), allocation_id=ALLOCATION)
    envelope = StatementEnvelope.model_validate(site_of_node.sign(NODE, make_statement(of_node, {})))
    assert refused(certificate(envelope, site_of_node.key_set())) == "other_statement", "findings about no machine"


@pytest.mark.parametrize(
    "members",
    [
        {"machine": machine_of(REPORT, ORDER).model_copy(update={"disks_found": 3})}, {"machine": None},
        {"hard_stopped": False}, {"devices": devices_of(REPORT)[:1], "level": "clear"},
        {"devices": [devices_of(REPORT)[0], wiped().model_copy(update={"kind": "gpu"})]},
        {"devices": [devices_of(REPORT)[0], wiped().model_copy(update={"serial": None})]},
        {"devices": [devices_of(REPORT)[0], wiped()]}, {"devices": [], "level": None, "verdict": "nothing_found"},
        {"verdict": "nothing_found"},
    ],
    ids=["a-disk-without-proof", "no-machine", "how-it-stopped", "left-out", "a-gpu", "no-serial", "serial-twice", "no-disk",
         "other-verdict"],
)  # fmt: skip
def test_a_statement_about_a_machine_names_each_of_its_disks(members: dict[str, Any]) -> None:
    claimed = {**PREDICATE.model_dump(), **{name: _plain(value) for name, value in members.items()}}
    if "devices" in members and "level" not in members:
        claimed["level"] = lowest_level([DeviceWipe.model_validate(one) for one in claimed["devices"]])
    with pytest.raises(ValidationError):
        WipePredicate.model_validate(claimed)
    assert WipePredicate.model_validate(PREDICATE.model_dump()) == PREDICATE


def _plain(value: Any) -> Any:
    if isinstance(value, MachineWipe):
        return value.model_dump()
    return [one.model_dump() for one in value] if isinstance(value, list) else value


def test_a_statement_of_a_node_is_written_as_before() -> None:
    written = json.loads(predicate_of(NODE, wiped()).model_dump_json())
    assert "machine" not in written
    link = Countersigned(
        statement_sha256="0" * 64, allocation_id=uuid4(), node_id=NODE, number=1, previous_sha256=None, countersigned_at=NOW
    )  # fmt: skip
    assert "machine" not in json.loads(countersigned_payload(link))


@given(st.data())
def test_a_changed_certificate_proves_what_was_signed_or_nothing(data: st.DataObject) -> None:
    text = TEXT
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters(min_codepoint=32, max_codepoint=126)) + text[place + 1 :]
    try:
        found = verify_certificate(read_certificate(changed.encode()), ALLOCATION, SITE.roots)
    except CertificateRefused:
        found = None
    assert found is None or (found.predicate, found.link) == (PREDICATE, verified(certificate()).link)


@pytest.mark.parametrize("verdict", ["wiped", "nothing_found", "destroyed"])
def test_a_changed_verdict_is_refused(verdict: str) -> None:
    envelope = signed()
    content = json.loads(base64.b64decode(envelope.payload))
    content["predicate"].update(verdict=verdict, level="destroy")
    payload = base64.b64encode(json.dumps(content).encode()).decode()
    forged = certificate().model_copy(update={"statement": envelope.model_copy(update={"payload": payload})})
    assert refused(forged) == "statement_invalid"


REASONS = st.sampled_from(
    [f"inspection listed none; {NOT_COMPARED}", "2 without a printable name, or unreadable, remain"]
)
REPORTS = st.builds(
    MetalWipeReport, disks=st.just(DISKS), tpm=st.sampled_from(["cleared", "absent", "refused", None]),
    variables_removed=st.lists(st.just("Boot0001-8be4df61-93ca-11d2-aa0d-00e098032b8c"), max_size=3),
    gaps=st.lists(st.builds(Gap, subject=st.sampled_from([UEFI, "firmware"]), reason=REASONS), max_size=3),
)  # fmt: skip


@given(REPORTS, st.sampled_from([None, []]))
def test_it_claims_no_more_than_the_report(report: MetalWipeReport, listed: list[Any] | None) -> None:
    order = ORDER.model_copy(update={"uefi_variables": listed})
    machine = machine_of(report, order)
    assert (machine.tpm == "cleared") == (report.tpm == "cleared")
    nothing = any(gap.subject == UEFI and gap.reason.endswith(NOT_COMPARED) for gap in report.gaps)
    assert (machine.uefi_variables is not None) == (listed is not None and not nothing)
    if machine.uefi_variables is not None:
        assert machine.uefi_variables == UefiComparison(removed=len(report.variables_removed), changed=0)
    assert set(machine.gaps) == {gap.subject for gap in report.gaps}
    assert machine.firmware is None, "none was read"
    unproven = DISKS[0].model_copy(update={"nonzero_bytes_found": True})
    assert not devices_of(report.model_copy(update={"disks": [unproven]}))[0].proven


def test_it_never_says_that_the_raw_variable_store_was_erased() -> None:
    compared = UefiComparison(removed=1, changed=0)
    with pytest.raises(ValidationError):
        UefiComparison.model_validate({**compared.model_dump(), "raw_store_erased": True})
    machine = machine_of(REPORT, ORDER).model_copy(update={"uefi_variables": compared})
    said = machine_claims(verified(certificate(signed(predicate(allocation_id=ALLOCATION, machine=machine)))))
    assert said is not None
    assert said[2] == "UEFI variables: 1 removed, 0 changed, raw store not erased"
    assert said[:2] == ["disks: all 2 that the deploy system found", "TPM: not_asked"]


def test_what_was_signed_is_not_valid_for_ever_by_its_ca() -> None:
    """The CA must have been valid when the wipe ended, not only the certificate."""
    early = NOW - 2 * DAY
    old = SITE.deploy_certificate(NODE, EPOCH, KEY, early, early + HOUR)
    found = certificate(signed(predicate(allocation_id=ALLOCATION, ended_at=early + MINUTE), old))
    assert refused(found) == "node_untrusted"
    assert digest_of({}) == open_statement(signed()).statement.subject[0].digest.sha256
