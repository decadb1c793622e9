"""Enrolment: a one-time token and a signing request in, a certificate with the node's identity out."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from node_agent.pinning import pin_of
from orchestrator.nodes.certificates import load_pin, node_identity
from orchestrator.problems import Unauthenticated
from tests.api.calling import Caller, at_once, enrol, new_node, new_region, problem, refusal, signing_request
from tests.node_agent.authority import Authority
from tests.support.public_api import PublicApi


def token_of(admin: Caller, node: Any, **members: Any) -> str:
    """A new token for a node."""
    made = admin.make(f"/admin/nodes/{node['id']}/enrolment-token", members)
    token: str = made["token"]
    return token


def use(admin: Caller, token: str, hardware_id: str = "machine-1", csr_pem: str | None = None) -> httpx.Response:
    """Enrol with a token."""
    body = {"token": token, "hardware_id": hardware_id, "csr_pem": csr_pem or signing_request()}
    return Caller(admin.http, None).call("POST", "/nodes/enroll", body)


def certificate_rows(api: PublicApi, node: Any) -> list[Any]:
    """(serial, epoch, live) of a node's certificates, oldest first."""
    rows = api.database.execute(
        "select serial, node_epoch, revoked_at is null from node_certificates where node_id = %s order by issued_at",
        (node["id"],),
    )
    return rows.fetchall()


def test_a_node_enrols_and_gets_a_certificate_that_names_it_and_nothing_else(
    api: PublicApi, admin: Caller, node: Any
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    answer = use(admin, token_of(admin, node), "machine-1", signing_request(key))
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["node_id"], told["node_epoch"]) == (node["id"], 1)
    assert told["node_api_url"].startswith("https://")
    assert len(told["verifying_keys"]) == 1

    certificate = x509.load_pem_x509_certificate(told["certificate_pem"].encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(told["ca_pem"].encode()))
    assert certificate.public_key() == key.public_key()
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(f"spiffe://berth.local/node/{node['id']}")]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert "admin" not in certificate.subject.rfc4514_string(), "nothing of the request's subject is taken over"
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert 86_400 <= lifetime.total_seconds() <= 86_400 + 120

    seen = admin.get(f"/admin/nodes/{node['id']}")
    assert (seen["state"], seen["epoch"], seen["hardware_id"]) == ("active", 1, "machine-1")
    assert certificate_rows(api, node) == [(format(certificate.serial_number, "x"), 1, True)]
    events = api.database.execute(
        "select payload from outbox where subject = %s and event_type = 'node.enrolled'", (f"nodes/{node['id']}",)
    )
    ((payload,),) = events.fetchall()
    assert payload["epoch"] == 1  # type: ignore[index]
    assert "node.enrol" in [
        entry["action"] for entry in admin.every("/admin/audit", 500, subject=f"nodes/{node['id']}")
    ]


def test_of_simultaneous_uses_of_one_token_exactly_one_wins(api: PublicApi, admin: Caller, node: Any) -> None:
    token = token_of(admin, node)
    answers = at_once(*[lambda: use(admin, token)] * 8)
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 7
    assert len(certificate_rows(api, node)) == 1
    assert admin.get(f"/admin/nodes/{node['id']}")["epoch"] == 1


def test_every_unusable_token_gets_the_same_refusal(api: PublicApi, admin: Caller, node: Any) -> None:
    used = token_of(admin, node)
    assert use(admin, used).status_code == 200
    over = token_of(admin, node)
    api.database.execute(
        "update enrolment_tokens set expires_at = clock_timestamp() where token_hash = %s",
        (hashlib.sha256(over.encode()).digest(),),
    )
    bound = token_of(admin, node, hardware_id="machine-2")
    answers = [use(admin, used), use(admin, over), use(admin, bound), use(admin, "enrol2.-." + "x" * 43)]
    details = {problem(answer, 401, "unauthenticated")["detail"] for answer in answers}
    assert len(details) == 1
    assert admin.get(f"/admin/nodes/{node['id']}")["epoch"] == 1


def test_a_lost_answer_is_asked_for_again_with_the_same_key(api: PublicApi, admin: Caller, node: Any) -> None:
    token, request = token_of(admin, node), signing_request(ec.generate_private_key(ec.SECP256R1()))
    answers = at_once(*[lambda: use(admin, token, csr_pem=request)] * 8)
    assert {(answer.status_code, answer.json().get("node_epoch")) for answer in answers} == {(200, 1)}
    assert len({answer.json()["certificate_pem"] for answer in answers}) == 1
    assert len(certificate_rows(api, node)) == 1
    enrolled = "select count(*) from outbox where event_type = 'node.enrolled' and subject = %s"
    row = api.database.execute(enrolled, (f"nodes/{node['id']}",)).fetchone()
    assert row == (1,), "there is one enrolment event, however many repetitions"


def test_a_lost_answer_is_returned_to_no_other_caller_and_not_for_ever(
    api: PublicApi, admin: Caller, node: Any
) -> None:
    token, request = token_of(admin, node), signing_request(ec.generate_private_key(ec.SECP256R1()))
    assert use(admin, token, csr_pem=request).status_code == 200
    problem(use(admin, token), 401, "unauthenticated")
    problem(use(admin, token, "machine-2", request), 401, "unauthenticated")
    admin.make(f"/admin/nodes/{node['id']}/certificates/revoke", {"reason": "stolen"})
    problem(use(admin, token, csr_pem=request), 401, "unauthenticated")
    assert admin.get(f"/admin/nodes/{node['id']}")["epoch"] == 1

    token = token_of(admin, node)
    assert use(admin, token, csr_pem=request).json()["node_epoch"] == 2
    over = "update enrolment_tokens set expires_at = clock_timestamp() where token_hash = %s"
    api.database.execute(over, (hashlib.sha256(token.encode()).digest(),))
    problem(use(admin, token, csr_pem=request), 401, "unauthenticated")


def test_enrolling_again_makes_every_older_certificate_worthless(api: PublicApi, admin: Caller, node: Any) -> None:
    assert enrol(admin, node["id"]).status_code == 200
    assert enrol(admin, node["id"]).json()["node_epoch"] == 2
    assert [(epoch, live) for _, epoch, live in certificate_rows(api, node)] == [(1, False), (2, True)]


def test_other_hardware_takes_a_nodes_place_only_by_a_token_that_names_it(admin: Caller, node: Any) -> None:
    assert enrol(admin, node["id"], "machine-1").status_code == 200
    problem(enrol(admin, node["id"], "machine-2"), 401, "unauthenticated")
    token = token_of(admin, node, hardware_id="machine-2")
    assert use(admin, token, "machine-2").status_code == 200
    assert admin.get(f"/admin/nodes/{node['id']}")["hardware_id"] == "machine-2"


def test_enrolling_again_keeps_what_the_operator_decided(admin: Caller, node: Any) -> None:
    enrol(admin, node["id"])
    admin.make(f"/admin/nodes/{node['id']}/cordon")
    assert enrol(admin, node["id"]).status_code == 200
    assert admin.get(f"/admin/nodes/{node['id']}")["state"] == "cordoned"


def test_a_token_is_returned_once_and_is_valid_as_long_as_requested(api: PublicApi, admin: Caller, node: Any) -> None:
    path, key = f"/admin/nodes/{node['id']}/enrolment-token", f"token of {node['id']}"
    first = admin.call("POST", path, {"valid_seconds": 5}, key=key)
    again = admin.call("POST", path, {"valid_seconds": 5}, key=key)
    assert first.json() == again.json()
    row = api.database.execute(
        "select extract(epoch from expires_at - created_at)::float8 from enrolment_tokens where token_hash = %s",
        (hashlib.sha256(first.json()["token"].encode()).digest(),),
    ).fetchone()
    assert row is not None
    assert 4.9 < float(str(row[0])) < 5.1
    for wrong in ({"valid_seconds": 0}, {"valid_seconds": 86_401}, {"hardware_id": ""}, {"hardware_id": "a b"}):
        problem(admin.call("POST", path, wrong), 422, "invalid")


def test_revoking_refuses_every_certificate_and_says_why(api: PublicApi, admin: Caller, node: Any) -> None:
    enrol(admin, node["id"])
    api.database.execute("update nodes set online = true where id = %s", (node["id"],))
    revoked = admin.make(f"/admin/nodes/{node['id']}/certificates/revoke", {"reason": "stolen"})
    assert revoked["online"] is False
    assert [live for _, _, live in certificate_rows(api, node)] == [False]
    problem(admin.call("POST", f"/admin/nodes/{node['id']}/certificates/revoke", {}), 422, "invalid")
    assert enrol(admin, node["id"]).status_code == 200, "a node whose certificate is gone can enrol again"


def _request(key: Any, algorithm: hashes.SHA256 | None = hashes.SHA256()) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, algorithm).public_bytes(Encoding.PEM).decode()


def _forged() -> str:
    """A request whose signature is not its key's."""
    pem = x509.load_pem_x509_csr(_request(ec.generate_private_key(ec.SECP256R1())).encode())
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    raw = pem.public_bytes(Encoding.DER)
    own = pem.public_key()
    assert isinstance(own, ec.EllipticCurvePublicKey)
    written, swapped = (key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint) for key in (own, other))
    forged = x509.load_der_x509_csr(raw.replace(written, swapped))
    return forged.public_bytes(Encoding.PEM).decode()


def _with_bytes_behind(pem: str) -> str:
    """Bytes that belong to nothing, inside the PEM."""
    raw = x509.load_pem_x509_csr(pem.encode()).public_bytes(Encoding.DER) + b"junk"
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{base64.b64encode(raw).decode()}\n-----END CERTIFICATE REQUEST-----\n"


@pytest.mark.parametrize(
    "csr_pem",
    [
        "",
        "junk",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        _request(rsa.generate_private_key(65537, 1024)),
        lambda: _request(dsa.generate_private_key(2048)),  # takes a second, which only the process that runs it spends
        _request(ec.generate_private_key(ec.SECP192R1())),
        _forged(),
        _request(ec.generate_private_key(ec.SECP256R1())) + "junk",
        _request(ec.generate_private_key(ec.SECP256R1())) * 2,
        "junk" + _request(ec.generate_private_key(ec.SECP256R1())),
        _with_bytes_behind(_request(ec.generate_private_key(ec.SECP256R1()))),
    ],
    ids=[
        "empty",
        "junk",
        "empty request",
        "RSA 1024",
        "DSA",
        "weak curve",
        "forged",
        "junk behind",
        "two",
        "junk before",
        "bytes behind",
    ],
)
def test_requests_that_prove_no_usable_key_are_refused_and_use_up_nothing(
    admin: Caller, node: Any, csr_pem: str | Callable[[], str]
) -> None:
    token = token_of(admin, node)
    body = {
        "token": token, "hardware_id": "machine-1", "csr_pem": csr_pem if isinstance(csr_pem, str) else csr_pem(),
    }  # fmt: skip
    document = problem(Caller(admin.http, None).call("POST", "/nodes/enroll", body), 422, "invalid")
    assert document["errors"][0]["field"] == "csr_pem"
    assert use(admin, token).status_code == 200


@pytest.mark.parametrize(
    "csr_pem",
    [
        _request(ec.generate_private_key(ec.SECP384R1())),
        _request(ed25519.Ed25519PrivateKey.generate(), None),
        _request(rsa.generate_private_key(65537, 2048)),
        "\r\n" + _request(ec.generate_private_key(ec.SECP256R1())).replace("\n", "\r\n") + " \n",
        _request(ec.generate_private_key(ec.SECP256R1())).replace(" CERTIFICATE", " NEW CERTIFICATE"),
    ],
    ids=["P-384", "Ed25519", "RSA 2048", "white space around", "the older name"],
)
def test_every_accepted_kind_of_key_is_certified(admin: Caller, node: Any, csr_pem: str) -> None:
    answer = use(admin, token_of(admin, node), csr_pem=csr_pem)
    assert answer.status_code == 200, answer.text
    certificate = x509.load_pem_x509_certificate(answer.json()["certificate_pem"].encode())
    assert certificate.public_key() == x509.load_pem_x509_csr(csr_pem.encode()).public_key()


def test_a_hardware_id_that_cannot_be_stored_is_refused(admin: Caller, node: Any) -> None:
    assert refusal(use(admin, token_of(admin, node), "nul\x00")) == (422, "invalid")


NODE_ID = uuid.uuid4()
OURS = ("URI", f"spiffe://berth.local/node/{NODE_ID}")


def test_the_identity_is_the_one_uri_of_our_trust_domain() -> None:
    peer = {"subjectAltName": (OURS, ("DNS", "x")), "serialNumber": "0ABC"}
    identity = node_identity(peer, "berth.local")
    assert (identity.node_id, identity.serial) == (NODE_ID, "abc")


@pytest.mark.parametrize(
    "peer",
    [
        None,
        {},
        {"serialNumber": "01"},
        {"subjectAltName": (), "serialNumber": "01"},
        {"subjectAltName": (OURS, OURS), "serialNumber": "01"},
        {"subjectAltName": (OURS, ("URI", "https://elsewhere")), "serialNumber": "01"},
        {"subjectAltName": (("DNS", OURS[1]),), "serialNumber": "01"},
        {"subjectAltName": (("URI", OURS[1].replace("berth.local", "evil.local")),), "serialNumber": "01"},
        {"subjectAltName": (("URI", OURS[1].replace("/node/", "/worker/")),), "serialNumber": "01"},
        {"subjectAltName": (("URI", OURS[1] + "/x"),), "serialNumber": "01"},
        {"subjectAltName": (("URI", OURS[1].replace("-", "")),), "serialNumber": "01"},
        {"subjectAltName": (OURS,)},
    ],
)
def test_any_other_certificate_names_no_identity(peer: dict[str, Any] | None) -> None:
    with pytest.raises(Unauthenticated):
        node_identity(peer, "berth.local")


def test_a_token_carries_the_pin_of_the_ca_of_the_public_listener(
    api: PublicApi, admin: Caller, tmp_path: Path
) -> None:
    node = new_node(admin, new_region(admin))
    assert re.fullmatch(r"enrol2\.-\.[A-Za-z0-9_-]{43}", token_of(admin, node)), "no CA is known"
    assert api.services is not None
    file = tmp_path / "ca.pem"
    authority = Authority.new()
    file.write_text(authority.pem)
    pin = load_pin(file)
    object.__setattr__(api.services, "enrolment_pin", pin)
    try:
        token = token_of(admin, node)
    finally:
        object.__setattr__(api.services, "enrolment_pin", None)
    assert pin == pin_of(authority.certificate)
    assert re.fullmatch(rf"enrol2\.{pin}\.[A-Za-z0-9_-]{{43}}", token)
    assert use(admin, token).status_code == 200


def test_the_ca_that_is_pinned_is_one_ca_or_none(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    for content in ("\n", "# Replace this line\n"):
        file.write_text(content)
        assert load_pin(file) is None
    for content in ("no certificate", Authority.new().pem + Authority.new().pem):
        file.write_text(content)
        with pytest.raises(ValueError, match="certificate"):
            load_pin(file)
