"""A node with a TPM proves it at enrolment and at each renewal; nothing else gets a certificate as that node."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from node_agent.attestation.wire import Attestation
from tests.api.calling import problem
from tests.api.nodes.attestation.attesting import Enrolling, Renewing, key_digest, refusals, set_attestation
from tests.api.nodes.attestation.software_tpm import SoftwareTpm, encoded
from tests.api.nodes.node_side import NodeSide, new_key
from tests.support.public_api import PublicApi


@pytest.fixture(scope="module")
def tpm() -> SoftwareTpm:
    """The node's TPM."""
    return SoftwareTpm()


@pytest.fixture(scope="module")
def other() -> SoftwareTpm:
    """The TPM of another machine."""
    return SoftwareTpm()


@pytest.fixture
def attested(api: PublicApi, node: Any, node_side: NodeSide, tpm: SoftwareTpm) -> Renewing:
    """A node that has enrolled with its TPM."""
    answer = Enrolling.of(api, node).attest(tpm)
    assert answer.status_code == 200, answer.text
    return Renewing(node_side, answer.json()["certificate_pem"])


def reason(answer: Any) -> Any:
    """Why a proof is refused."""
    return problem(answer, 403, "attestation_refused")["reason"]


def test_the_first_enrolment_with_a_tpm_pins_it_and_operators_see_it(
    api: PublicApi, node: Any, attested: Renewing, tpm: SoftwareTpm
) -> None:
    seen = api.admin.get(f"/admin/nodes/{node['id']}")
    assert (seen["attestation"], seen["ek_sha256"]) == ("offered", tpm.ek_sha256)
    assert seen["attested_at"] is not None
    row: Any = api.database.execute(
        "select detail from audit_pending where action = 'node.enrol' and subject = %s", (f"nodes/{node['id']}",)
    ).fetchone()
    assert row is not None
    assert row[0]["pcr_digest"] == "00" * 32
    assert row[0]["ek_sha256"] == tpm.ek_sha256


def test_each_renewal_is_attested_by_the_same_keys(attested: Renewing, tpm: SoftwareTpm) -> None:
    for _ in range(2):
        renewed = attested.attest(tpm)
        assert renewed.status_code == 200, renewed.text
        attested.pem = renewed.json()["certificate_pem"]


def test_a_repeated_renewal_returns_the_certificate_without_another_proof(attested: Renewing, tpm: SoftwareTpm) -> None:
    key = new_key()
    first = attested.attest(tpm, key)
    assert attested.send(key).json()["certificate_pem"] == first.json()["certificate_pem"]


def test_a_repeated_enrolment_needs_no_second_proof(api: PublicApi, node: Any, tpm: SoftwareTpm) -> None:
    enrolling = Enrolling.of(api, node)
    first = enrolling.attest(tpm)
    assert enrolling.challenge(tpm).credential is None
    assert enrolling.send().json()["certificate_pem"] == first.json()["certificate_pem"]


def test_a_copied_key_without_the_tpm_gets_no_certificate_and_does_not_suspend_the_node(
    api: PublicApi, node: Any, attested: Renewing, tpm: SoftwareTpm
) -> None:
    problem(attested.send(new_key()), 403, "attestation_required")
    renewed = attested.attest(tpm)
    assert renewed.status_code == 200
    problem(attested.send(new_key()), 403, "attestation_required")
    assert api.admin.get(f"/admin/nodes/{node['id']}")["identity_conflict_at"] is None
    assert refusals(api, node) == [("attestation_required", None)] * 2


def test_another_tpm_is_refused_at_renewal_and_at_enrolment(
    api: PublicApi, node: Any, attested: Renewing, other: SoftwareTpm
) -> None:
    assert reason(attested.ask(other)) == "other_tpm"
    assert reason(Enrolling.of(api, node).ask(other)) == "other_tpm"
    assert refusals(api, node) == [("attestation_refused", "other_tpm")] * 2


def test_a_pinned_node_does_not_enrol_again_without_its_tpm(api: PublicApi, node: Any, attested: Renewing) -> None:
    problem(Enrolling.of(api, node).send(), 403, "attestation_required")
    assert api.admin.get(f"/admin/nodes/{node['id']}")["epoch"] == 1


def test_another_attestation_key_of_the_same_tpm_is_refused_until_the_node_enrols(
    api: PublicApi, node: Any, attested: Renewing, tpm: SoftwareTpm
) -> None:
    another = SoftwareTpm(ek=tpm.ek)
    assert reason(attested.ask(another)) == "other_key"
    assert Enrolling.of(api, node).attest(another).status_code == 200


def test_the_challenge_of_one_tpm_is_of_no_use_to_another(
    attested: Renewing, tpm: SoftwareTpm, other: SoftwareTpm
) -> None:
    with pytest.raises(ValueError, match=r"ecryption failed"):
        other.activate(attested.challenge(tpm))
    with pytest.raises(ValueError, match="for another key"):
        SoftwareTpm(ek=tpm.ek).activate(attested.challenge(tpm))


def test_a_replayed_quote_is_refused(attested: Renewing, tpm: SoftwareTpm, api: PublicApi, node: Any) -> None:
    key = new_key()
    proof = tpm.answer(attested.challenge(tpm), key_digest(key))
    renewed = attested.send(key, proof)
    successor = Renewing(attested.side, renewed.json()["certificate_pem"])
    assert reason(successor.send(new_key(), proof)) == "no_challenge"
    successor.challenge(tpm)
    assert reason(successor.send(new_key(), proof)) == "other_request"
    assert [why for _, why in refusals(api, node)] == ["no_challenge", "other_request"]


def test_a_quote_over_another_request_is_refused_and_uses_the_challenge_up(
    attested: Renewing, tpm: SoftwareTpm
) -> None:
    key = new_key()
    proof = tpm.answer(attested.challenge(tpm), key_digest(key))
    assert reason(attested.send(new_key(), proof)) == "other_request"
    assert reason(attested.send(key, proof)) == "no_challenge"
    assert attested.attest(tpm).status_code == 200, "the node itself goes on"


def test_a_quote_of_another_key_is_refused(attested: Renewing, tpm: SoftwareTpm, other: SoftwareTpm) -> None:
    key = new_key()
    proof = tpm.answer(attested.challenge(tpm), key_digest(key))
    forged = other.ak.sign(b"something", ec.ECDSA(hashes.SHA256()))
    assert reason(attested.send(key, Attestation(quote=proof.quote, signature=encoded(forged)))) == "bad_signature"


def test_an_expired_challenge_is_refused(api: PublicApi, node: Any, attested: Renewing, tpm: SoftwareTpm) -> None:
    key = new_key()
    proof = tpm.answer(attested.challenge(tpm), key_digest(key))
    api.database.execute("update attestation_challenges set expires_at = now() where node_id = %s", (node["id"],))
    assert reason(attested.send(key, proof)) == "no_challenge"


def test_a_signing_key_that_is_not_restricted_is_refused(api: PublicApi, node: Any) -> None:
    for attributes in (0x00040072, 0x00050070, 0x00050052, 0x00070072):
        assert reason(Enrolling.of(api, node).ask(SoftwareTpm(ak_attributes=attributes))) == "unsuitable_key"


def test_a_refused_enrolment_leaves_the_token_and_the_node(
    api: PublicApi, node: Any, tpm: SoftwareTpm, other: SoftwareTpm
) -> None:
    set_attestation(api, node, policy="required", ek_sha256=tpm.ek_sha256)
    enrolling = Enrolling.of(api, node)
    problem(enrolling.send(), 403, "attestation_required")
    assert reason(enrolling.ask(other)) == "other_tpm"
    assert api.admin.get(f"/admin/nodes/{node['id']}")["epoch"] == 0
    assert enrolling.attest(tpm).status_code == 200


def test_with_the_policy_required_a_node_that_enrolled_without_its_tpm_does_not_renew(
    api: PublicApi, node: Any, node_side: NodeSide, tpm: SoftwareTpm
) -> None:
    renewing = Renewing(node_side, Enrolling.of(api, node).send().json()["certificate_pem"])
    assert renewing.challenge(tpm).credential is None
    set_attestation(api, node, policy="required")
    problem(renewing.send(new_key()), 403, "attestation_required")
    problem(renewing.send(new_key(), tpm.quote(b"")), 403, "attestation_required")


def test_a_tpm_cannot_be_pinned_by_a_renewal(api: PublicApi, node: Any, node_side: NodeSide, tpm: SoftwareTpm) -> None:
    renewing = Renewing(node_side, Enrolling.of(api, node).send().json()["certificate_pem"])
    assert renewing.send(new_key(), tpm.quote(b"")).status_code == 200
    assert api.admin.get(f"/admin/nodes/{node['id']}")["ek_sha256"] is None


def test_with_the_policy_off_nothing_is_asked_for_and_nothing_pinned(
    api: PublicApi, node: Any, tpm: SoftwareTpm
) -> None:
    set_attestation(api, node, policy="off")
    enrolling = Enrolling.of(api, node)
    assert enrolling.challenge(tpm).credential is None
    assert enrolling.send(tpm.quote(b"")).status_code == 200
    assert api.admin.get(f"/admin/nodes/{node['id']}")["ek_sha256"] is None


def test_an_operator_replaces_a_tpm_by_forgetting_it(
    api: PublicApi, node: Any, attested: Renewing, other: SoftwareTpm
) -> None:
    assert set_attestation(api, node, policy="offered")["ek_sha256"] is not None, "unsaid, the TPM stays"
    assert set_attestation(api, node, policy="offered", forget_tpm=True)["ek_sha256"] is None
    assert Enrolling.of(api, node).attest(other).status_code == 200
    assert api.admin.get(f"/admin/nodes/{node['id']}")["ek_sha256"] == other.ek_sha256


def test_a_registered_certificate_of_an_endorsement_key_is_its_fingerprint(
    api: PublicApi, node: Any, tpm: SoftwareTpm
) -> None:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "TPM vendor")])
    now = dt.datetime.now(dt.UTC)
    signer = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(tpm.ek.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + dt.timedelta(days=1)).sign(signer, hashes.SHA256())
    )  # fmt: skip
    pem = certificate.public_bytes(Encoding.PEM).decode()
    assert set_attestation(api, node, policy="required", ek_certificate=pem)["ek_sha256"] == tpm.ek_sha256
    broken = pem.replace("MII", "AAA", 1)
    both = {"policy": "required", "ek_certificate": pem, "forget_tpm": True}
    for body in ({"policy": "required", "ek_certificate": broken}, both):
        problem(api.admin.call("PUT", f"/admin/nodes/{node['id']}/attestation", body), 422, "invalid")


@pytest.mark.parametrize("member", ["quote", "signature"])
def test_structures_that_are_none_are_refused(attested: Renewing, tpm: SoftwareTpm, member: str) -> None:
    key = new_key()
    proof = tpm.answer(attested.challenge(tpm), key_digest(key)).model_dump()
    problem(attested.side.http.post("/node/v1/certificate", json={}), 422, "invalid")
    answer = attested.send(key, Attestation(**{**proof, member: encoded(b"\xff" * 900)}))
    assert reason(answer) == "malformed"


def test_an_unknown_token_gets_no_challenge(api: PublicApi, node: Any, tpm: SoftwareTpm) -> None:
    enrolling = Enrolling.of(api, node)
    enrolling.token = "enrol2.-." + "x" * 43
    problem(enrolling.ask(tpm), 401, "unauthenticated")
    assert refusals(api, node) == []
