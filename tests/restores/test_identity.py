"""Certificates of the lost interval: a node that was renewed in it is let in, one that was revoked or enrolled again is not."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from berth.local.authority import ensure_authority
from berth.local.servers import LocalPostgres
from orchestrator.nodes.certificates import NodeAuthority, key_digest, read_signing_request
from orchestrator.nodes.commands.certificates import revoke_node_certificates
from orchestrator.nodes.commands.issuance import issue_certificate
from orchestrator.nodes.store.certificate_requests import record_request
from orchestrator.nodes.store.certificates import require_standing, revoke_certificates
from orchestrator.nodes.store.nodes import lock_node
from orchestrator.operations.execution import Context
from orchestrator.problems import Unauthenticated
from tests.allocations.driving import ADMIN, operation, rows_of, run_with
from tests.allocations.seeding import Seeded, seed
from tests.api.calling import signing_request
from tests.berth.commands import berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.restores.publishing import publish

RENEWED, REVOKED, AGAIN, UNTOUCHED = range(4)


@dataclass
class Fleet:
    """Nodes with certificates, and the issuer. `serials`: of each node, in the order of their issuance."""

    url: str
    seeded: Seeded
    authority: NodeAuthority
    serials: dict[int, list[str]] = field(default_factory=dict)

    def renew(self, number: int, *, enrols: bool = False) -> None:
        """The node gets its next certificate; with `enrols` the first one of a new epoch."""
        node, csr = self.seeded.nodes[number].id, signing_request()

        async def way(context: Context) -> None:
            async with context.database.transaction() as tx:
                await lock_node(tx, node)
                if enrols:
                    await revoke_certificates(tx, node, "the node enrolled again")
                    await tx.execute("update nodes set epoch = epoch + 1 where id = :id", {"id": node})
                    event = "insert into outbox (event_type, correlation_id, subject, payload) values"
                    payload = {"node_id": node, "name": "n", "epoch": 2, "hardware_id": "h", "state": "active"}
                    values = {"subject": f"nodes/{node}", "payload": json.dumps(payload, default=str)}
                    await tx.execute(f"{event} ('node.enrolled', uuidv7(), :subject, cast(:payload as jsonb))", values)
                (epoch,) = (await tx.execute("select epoch from nodes where id = :id", {"id": node})).one()
                request = await record_request(
                    tx, node, epoch, predecessor=None if enrols or number not in self.serials else self.serials[number][-1],
                    key_sha256=key_digest(read_signing_request(csr)), csr_pem=csr, evidence=None, request_id="r",
                )  # fmt: skip
            assert await issue_certificate(context.database, self.authority, request, node)

        run_with(self.url, way)
        newest = "select serial from node_certificates where node_id = %s order by issued_at desc limit 1"
        ((serial,),) = rows_of(self.url, newest, node)
        self.serials.setdefault(number, []).append(serial)

    def revoke(self, number: int) -> None:
        """An operator revokes the certificates of the node."""
        node = self.seeded.nodes[number].id
        run_with(
            self.url,
            lambda context: revoke_node_certificates(context, operation(self.seeded), ADMIN, node, reason="stolen"),
        )


@dataclass
class Past:
    """The restored database, and what its nodes present."""

    url: str
    nats_url: str
    fleet: Fleet

    def berth(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = berth(*arguments, BERTH_DATABASE_URL=self.url, BERTH_NATS_URL=self.nats_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def let_in(self) -> dict[int, list[bool]]:
        """For each certificate of each node whether it counts."""
        return {
            number: [self._counts(self.fleet.seeded.nodes[number].id, serial) for serial in serials]
            for number, serials in self.fleet.serials.items()
        }

    def _counts(self, node: uuid.UUID, serial: str) -> bool:
        async def way(context: Context) -> bool:
            async with context.database.reading() as reading:
                with suppress(Unauthenticated):
                    await require_standing(reading, node, serial)
                    return True
            return False

        return run_with(self.url, way)


@pytest.fixture
def past(postgres_server: LocalPostgres, database_url: str, nats_url: str, tmp_path: Path) -> Iterator[Past]:
    """A database from before all but one node got other certificates, some of them twice."""
    files = ensure_authority(tmp_path, "berth.local")
    key = load_pem_private_key(files.ca_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(files.ca_certificate.read_bytes())
    fleet = Fleet(
        database_url, seed(database_url, slice_nodes=4), NodeAuthority(certificate, key, "berth.local", 3600.0)
    )
    for number in range(4):
        fleet.renew(number)
    publish(database_url, nats_url)
    with copied_database(postgres_server, database_url.rpartition("/")[2]) as url:
        fleet.renew(RENEWED)
        fleet.renew(RENEWED)
        fleet.renew(REVOKED)
        fleet.revoke(REVOKED)
        fleet.renew(AGAIN, enrols=True)
        publish(database_url, nats_url)
        yield Past(url, nats_url, fleet)


@pytest.mark.full
def test_a_certificate_of_the_lost_interval_is_adopted_unless_the_node_was_revoked_in_it(
    past: Past, tmp_path: Path
) -> None:
    past.berth("restore", "begin")
    past.berth("restore", "export", "--to", str(tmp_path / "lost"))
    assert "adopt    2 certificates of nodes" in past.berth("restore", "run")
    assert past.let_in() == {
        RENEWED: [True, True, True], REVOKED: [False, False], AGAIN: [False, False], UNTOUCHED: [True],
    }  # fmt: skip
    report = [json.loads(line) for line in (tmp_path / "lost/report.ndjson").read_text().splitlines()]
    steps = {(line["kind"], line["replayed"]): line["next_step"] for line in report}
    assert "adopts" in steps["certificate_issued", True]
    assert "enrol the node again" in steps["certificate_issued", False], "of the epoch that the database does not know"
    assert "enrol the node again" in steps["node_enrolled", True]
    columns = "serial, node_epoch, key_sha256, not_before, not_after, predecessor, pem, authority_key_sha256"
    node = past.fleet.seeded.nodes[RENEWED].id
    compared = f"select {columns} from node_certificates where node_id = %s order by not_before, serial"
    assert rows_of(past.url, compared, node) == rows_of(past.fleet.url, compared, node)
    audited = rows_of(past.url, "select subject from audit where action = 'node.adopt_certificate'")
    assert audited == [(f"nodes/{node}",)] * 2
    # Its next renewal goes on from the adopted one.
    renewing = Fleet(past.url, past.fleet.seeded, past.fleet.authority, {RENEWED: past.fleet.serials[RENEWED][:]})
    renewing.renew(RENEWED)
    past.fleet.serials[RENEWED] = renewing.serials[RENEWED]
    assert past.let_in()[RENEWED] == [True] * 4


def test_without_an_export_a_certificate_of_the_lost_interval_is_refused(past: Past) -> None:
    past.berth("restore", "run", "--without-export", NO_NATS)
    assert past.let_in() == {
        RENEWED: [True, False, False], REVOKED: [True, False], AGAIN: [True, False], UNTOUCHED: [True],
    }  # fmt: skip
