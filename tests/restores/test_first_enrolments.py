"""A restore to before a node's first enrolment: the node is refused, and enrols again with a new token, above its lost epoch."""

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
from orchestrator.nodes.certificates import NodeAuthority
from orchestrator.nodes.commands.enrolment import EnrolmentRequest, enrol_node
from orchestrator.nodes.commands.issuance import issue_pending
from orchestrator.nodes.store.certificates import require_standing
from orchestrator.operations.execution import Context
from orchestrator.problems import CertificatePending, Unauthenticated
from tests.allocations.driving import rows_of, run_with
from tests.api.calling import Caller, insert_admin_key, new_node, new_region, signing_request
from tests.api.processes import public_process
from tests.berth.commands import berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.restores.publishing import publish

MACHINE = "machine-1"


@dataclass
class Scene:
    """A database from before the node enrolled. `lost_serial`: of its certificate; `token`: with which it enrolled."""

    url: str
    nats_url: str
    place: Path
    key: str
    authority: NodeAuthority
    node: uuid.UUID
    token: str = ""
    lost_serial: str = ""
    lost_epoch: int = 0
    calls: int = field(default=0)

    def berth(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = berth(*arguments, BERTH_DATABASE_URL=self.url, BERTH_NATS_URL=self.nats_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def new_token(self, url: str) -> str:
        """What `berth node token` returns."""
        self.calls += 1
        with public_process(url, self.place / f"api-{self.calls}") as http:
            made = Caller(http, self.key).make(f"/admin/nodes/{self.node}/enrolment-token", {})
        return str(made["token"])

    def enrol(self, url: str, token: str) -> tuple[str, int]:
        """The agent enrols with a token and the issuer signs; the certificate's serial and the node's epoch."""

        async def play(context: Context) -> None:
            with suppress(CertificatePending):
                wanted = EnrolmentRequest(
                    token=token, hardware_id=MACHINE, csr_pem=signing_request(), request_id="r", attestation=None
                )
                await enrol_node(context, wanted, wait_seconds_max=0.0)
            assert await issue_pending(context.database, self.authority) == 1

        run_with(url, play)
        ((serial, epoch),) = rows_of(
            url, "select serial, node_epoch from node_certificates where node_id = %s and revoked_at is null", self.node
        )
        return str(serial), int(epoch)

    def is_let_in(self, serial: str) -> bool:
        """Whether a certificate of the node counts in the restored database."""

        async def play(context: Context) -> bool:
            async with context.database.reading() as reading:
                with suppress(Unauthenticated):
                    await require_standing(reading, self.node, serial)
                    return True
            return False

        return run_with(self.url, play)


@pytest.fixture
def scene(postgres_server: LocalPostgres, database_url: str, nats_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The node is registered and has a token at the moment; it enrols in the lost interval, which NATS has."""
    files = ensure_authority(tmp_path, "berth.local")
    key = load_pem_private_key(files.ca_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(files.ca_certificate.read_bytes())
    authority = NodeAuthority(certificate, key, "berth.local", 3600.0)
    admin_key = insert_admin_key(database_url)
    with public_process(database_url, tmp_path / "before") as http:
        admin = Caller(http, admin_key)
        node = uuid.UUID(new_node(admin, new_region(admin))["id"])
    made = Scene("", nats_url, tmp_path, admin_key, authority, node)
    made.token = made.new_token(database_url)
    publish(database_url, nats_url)
    with copied_database(postgres_server, database_url.rpartition("/")[2]) as made.url:
        made.lost_serial, made.lost_epoch = made.enrol(database_url, made.token)
        publish(database_url, nats_url)
        yield made


def enrolled_again(scene: Scene) -> int:
    """The node is refused, also with its earlier token, until it enrols with a new one; return its new epoch."""
    assert not scene.is_let_in(scene.lost_serial)
    with pytest.raises(Unauthenticated):
        scene.enrol(scene.url, scene.token)
    serial, epoch = scene.enrol(scene.url, scene.new_token(scene.url))
    assert scene.is_let_in(serial)
    assert not scene.is_let_in(scene.lost_serial)
    assert rows_of(scene.url, "select state from nodes where id = %s", scene.node) == [("active",)]
    return epoch


def test_a_node_that_first_enrolled_in_the_lost_interval_enrols_again_though_nats_has_its_certificate(
    scene: Scene,
) -> None:
    scene.berth("restore", "begin")
    scene.berth("restore", "export", "--to", str(scene.place / "lost"))
    report = [json.loads(line) for line in (scene.place / "lost/report.ndjson").read_text().splitlines()]
    steps = {line["kind"]: line["next_step"] for line in report}
    assert {"node_enrolled", "certificate_issued"} <= steps.keys()
    assert all("berth node token" in steps[kind] for kind in ("node_enrolled", "certificate_issued"))
    scene.berth("events", "rebuild", "--accept-timeline")
    assert "adopt    0 certificates of nodes" in scene.berth("restore", "run")
    assert enrolled_again(scene) > scene.lost_epoch, "no epoch is given twice"


def test_a_node_that_first_enrolled_in_the_lost_interval_enrols_again_without_an_export(scene: Scene) -> None:
    scene.berth("restore", "run", "--without-export", NO_NATS)
    assert enrolled_again(scene) > scene.lost_epoch, "no epoch is given twice"
