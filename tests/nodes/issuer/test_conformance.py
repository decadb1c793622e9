"""What every issuer must do, through its one interface: the rows that listeners record and issuers decide.

The issuer is a process, by default the shipped one; `BERTH_CONFORMANCE_ISSUER` names another command (shell words), which gets
the same variables (docs/how-to/access/replace-the-issuer.md). The tests neither import nor call code of an issuer.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from berth.local.authority import Authority, ensure_authority
from berth.local.servers import LocalPostgres
from migrations.roles import Role
from node_agent.attestation.wire import quoted_data
from tests.api.calling import signing_request
from tests.api.nodes.attestation.software_tpm import SoftwareTpm
from tests.databases import as_role, copied_database
from tests.placement.fleet import ADD_NODES, Fleet
from tests.support.waiting import wait_for

COMMAND = "BERTH_CONFORMANCE_ISSUER"
LIFETIME_MAX = dt.timedelta(days=30)
_RECORD = """
insert into certificate_requests (node_id, node_epoch, predecessor, key_sha256, csr_pem, request_id, attestation_secret, quote,
                                  quote_signature)
values (%(node)s, %(epoch)s, %(predecessor)s, %(key)s, %(csr)s, 'conformance', %(secret)s, %(quote)s, %(signature)s) returning id
"""
_DECIDED = """
select serial, refusal from certificate_requests where id = %s and (serial is not null or refusal is not null)
"""


@dataclass
class Interface:
    """The database between listeners and issuer, from the listeners' side."""

    fleet: Fleet
    authority: Authority

    def node(self) -> uuid.UUID:
        """A node in its first epoch, which has enrolled and has no certificate yet."""
        self.fleet.connection.execute(ADD_NODES, (1, "gpu_slice"))
        found = self.fleet.one("select id from nodes order by unit_base desc limit 1")
        assert isinstance(found, uuid.UUID)
        self.execute("update nodes set epoch = 1 where id = %s", found)
        return found

    def execute(self, statement: str, *values: object) -> None:
        """Change rows."""
        self.fleet.connection.execute(statement, values)

    def record(self, node: uuid.UUID, own: ec.EllipticCurvePrivateKey | None = None, **members: Any) -> uuid.UUID:
        """A request as a listener records it; `members` replace columns."""
        used = own or ec.generate_private_key(ec.SECP256R1())
        values = {"node": node, "epoch": 1, "predecessor": None, "key": digest(used), "csr": signing_request(used)}
        values |= {"secret": None, "quote": None, "signature": None} | members
        row = self.fleet.connection.execute(_RECORD, values).fetchone()
        assert row is not None
        recorded: uuid.UUID = row[0]
        return recorded

    def decision(self, request: uuid.UUID) -> tuple[str | None, str | None]:
        """Serial number and refusal, once the issuer has decided."""
        found: list[Any] = []

        def decided() -> bool:
            found[:] = self.fleet.connection.execute(_DECIDED, (request,)).fetchall()
            return bool(found)

        wait_for(decided, "the issuer decides")
        serial, refusal = found[0]
        return serial, refusal

    def serial(self, request: uuid.UUID) -> str:
        """The serial number of the certificate that was issued."""
        serial, refusal = self.decision(request)
        assert serial is not None, refusal
        return serial

    def audited(self, node: uuid.UUID) -> list[Any]:
        """The actions of the issuer for this node, in order."""
        rows = self.fleet.connection.execute(
            "select action from audit_pending where subject = %s order by id", (f"nodes/{node}",)
        )
        return [action for (action,) in rows.fetchall()]


def digest(key: ec.EllipticCurvePrivateKey) -> bytes:
    """SHA-256 of the key's SubjectPublicKeyInfo."""
    return hashlib.sha256(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


@contextmanager
def running_issuer(url: str, authority: Authority) -> Iterator[None]:
    """The issuer under test, with the variables that every issuer gets."""
    command = shlex.split(os.environ.get(COMMAND, "")) or [sys.executable, "-m", "orchestrator", "--listen", "issuer"]
    environment = {
        **os.environ, "BERTH_DATABASE_URL": as_role(url, Role.ISSUER), "BERTH_TRUST_DOMAIN": "berth.local",
        "BERTH_NODE_CA_CERTIFICATE_FILE": str(authority.ca_certificate), "BERTH_NODE_CA_KEY_FILE": str(authority.ca_key),
    }  # fmt: skip
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def interface(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Interface]:
    """The interface with two running issuers: any number may run."""
    directory: Path = tmp_path_factory.mktemp("authority")
    authority = ensure_authority(directory, "berth.local")
    with (
        copied_database(postgres_server, migrated_template) as url,
        running_issuer(url, authority),
        running_issuer(url, authority),
    ):
        yield Interface(Fleet(url), authority)


def test_a_first_certificate_names_the_node_and_certifies_the_key_of_the_request(interface: Interface) -> None:
    node, key = interface.node(), ec.generate_private_key(ec.SECP256R1())
    serial = interface.serial(interface.record(node, key))
    row: Any = interface.fleet.connection.execute(
        "select node_id, node_epoch, key_sha256, not_before, not_after, predecessor, pem, authority_key_sha256, revoked_at"
        " from node_certificates where serial = %s", (serial,),
    ).fetchone()  # fmt: skip
    certificate = x509.load_pem_x509_certificate(row[6].encode())
    authority = x509.load_pem_x509_certificate(interface.authority.ca_certificate.read_bytes())
    certificate.verify_directly_issued_by(authority)
    ca_key = authority.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert (row[0], row[1], row[2], row[5], row[8]) == (node, 1, digest(key), None, None)
    assert (row[3], row[4]) == (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    assert row[7] == hashlib.sha256(ca_key).digest()
    assert serial == format(certificate.serial_number, "x")
    assert certificate.public_key() == key.public_key()
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(f"spiffe://berth.local/node/{node}")]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    now = dt.datetime.now(dt.UTC)
    assert certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc <= now + LIFETIME_MAX
    assert interface.audited(node) == ["node.issue_certificate"]


def test_a_renewal_names_its_predecessor(interface: Interface) -> None:
    node = interface.node()
    first = interface.serial(interface.record(node))
    second = interface.serial(interface.record(node, predecessor=first))
    found = interface.fleet.one("select predecessor from node_certificates where serial = %s", second)
    assert (found, second != first) == (first, True)
    assert interface.audited(node) == ["node.issue_certificate", "node.renew_certificate"]


REFUSED: dict[str, tuple[LiteralString, dict[str, Any]]] = {
    "an epoch that is over": ("update nodes set epoch = 2 where id = %(node)s", {"epoch": 1}),
    "a retired node": ("update nodes set state = 'retired' where id = %(node)s", {}),
    "a node with two keys": ("update nodes set identity_conflict_at = now() where id = %(node)s", {}),
    "a second first certificate": ("select", {"predecessor": None, "epoch": 1}),
    "a revoked predecessor": ("update node_certificates set revoked_at = now() where node_id = %(node)s", {}),
    "an expired predecessor": ("update node_certificates set not_after = now() where node_id = %(node)s", {}),
    "a predecessor of another node": ("select", {"predecessor": "ab"}),
    "another key than the recorded one": ("select", {"key": bytes(32)}),
    "a request that cannot be read": ("select", {"csr": "no request"}),
}
"""What changes between a first certificate and the request for its successor, and members of that request."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_identity_does_not_allow_is_refused_and_audited(interface: Interface, name: str) -> None:
    statement, members = REFUSED[name]
    node = interface.node()
    first = interface.serial(interface.record(node))
    if name == "a second first certificate":
        interface.execute("delete from certificate_requests where node_id = %s", node)
    interface.fleet.connection.execute(statement, {"node": node})
    wanted: dict[str, Any] = {"predecessor": first, **members}
    serial, refusal = interface.decision(interface.record(node, **wanted))
    assert serial is None
    assert refusal
    assert interface.fleet.one("select count(*) from node_certificates where node_id = %s", node) == 1
    assert interface.audited(node)[-1] == "node.refuse_certificate"


def test_a_predecessor_with_a_successor_is_refused(interface: Interface) -> None:
    node = interface.node()
    first = interface.serial(interface.record(node))
    interface.serial(interface.record(node, predecessor=first))
    interface.execute("delete from certificate_requests where node_id = %s and predecessor = %s", node, first)
    assert interface.decision(interface.record(node, predecessor=first))[0] is None


def test_a_node_with_a_tpm_is_signed_with_its_quote_alone(interface: Interface) -> None:
    tpm, secret = SoftwareTpm(), bytes(32)
    for proven in (True, False):
        node, key = interface.node(), ec.generate_private_key(ec.SECP256R1())
        interface.execute(
            "insert into node_tpms (node_id, policy, ek_sha256, ek_public, ak_public) values (%s, 'required', %s, %s, %s)",
            node, bytes.fromhex(tpm.ek_sha256), tpm.ek_public, tpm.ak_public,
        )  # fmt: skip
        proof = tpm.quote(quoted_data(secret, digest(key) if proven else bytes(32)))
        quote, signature = base64.b64decode(proof.quote), base64.b64decode(proof.signature)
        serial, _ = interface.decision(interface.record(node, key, secret=secret, quote=quote, signature=signature))
        assert (serial is not None) == proven
        attested = interface.fleet.one("select attested_at is not null from node_tpms where node_id = %s", node)
        assert attested == proven


def test_each_request_is_decided_once_by_any_number_of_issuers(interface: Interface) -> None:
    nodes = [interface.node() for _ in range(20)]
    serials = {interface.serial(request) for request in [interface.record(node) for node in nodes]}
    assert len(serials) == len(nodes)
    for node in nodes:
        assert interface.fleet.one("select count(*) from node_certificates where node_id = %s", node) == 1
        assert interface.audited(node) == ["node.issue_certificate"]


def test_a_withdrawn_request_stays_refused(interface: Interface) -> None:
    node, other = interface.node(), interface.node()
    with interface.fleet.connection.transaction():
        withdrawn = interface.record(node)
        interface.execute("update certificate_requests set refusal = 'revoked' where id = %s", withdrawn)
    interface.serial(interface.record(other))  # recorded later, so the issuer has read the earlier one before
    assert interface.decision(withdrawn) == (None, "revoked")
    assert interface.audited(node) == []
