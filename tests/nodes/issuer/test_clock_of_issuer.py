"""Certificates begin and end by the database's clock: an issuer whose wall clock has stepped locks no holder out."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from berth.local.authority import ensure_authority
from node_agent.wire.deploy_medium import MediumNetwork, read_medium
from orchestrator.nodes import certificates
from orchestrator.nodes.certificates import NodeAuthority, key_digest, read_signing_request
from orchestrator.nodes.commands.deploy_enrolment import DeployEnrolment, enrol_deploy_system, presented_key
from orchestrator.nodes.commands.deploy_issuance import issue_pending_deploy_systems
from orchestrator.nodes.commands.deploy_systems import DeployOrder, permit_deploy_system
from orchestrator.nodes.commands.issuance import issue_certificate
from orchestrator.nodes.deploy_systems.rules import Addresses, Presented
from orchestrator.nodes.store.certificate_requests import record_request
from orchestrator.nodes.store.enrolment import insert_token
from orchestrator.nodes.store.holders import Holder
from orchestrator.operations.execution import Context
from orchestrator.operations.sealing import Sealer
from orchestrator.problems import CertificatePending
from orchestrator.sites.commands.agents import enrol_agent
from orchestrator.sites.commands.issuance import issue_pending_of_agents
from orchestrator.sites.store import agents, sites
from tests.allocations.driving import ADMIN, rows_of
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import make_context, seed
from tests.api.calling import signing_request
from tests.deploy_system.stage import MAC, SMBIOS
from tests.nodes.answers import body_of

ADDRESSES = Addresses("https://public.example", "ca", "https://node.example", 1)
ORDER = DeployOrder(MediumNetwork(mac=MAC, address="192.0.2.7/24"), SMBIOS, (), False, 900, 1_800)
STEPS = (timedelta(hours=1), -timedelta(hours=1))
Issue = Callable[[Context, NodeAuthority, uuid.UUID], Awaitable[None]]


def stepped(step: timedelta) -> type[datetime]:
    """The wall clock of a process, ahead by so much."""

    class Stepped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + step

    return Stepped


def authority_of(directory: Path, *, deploy: bool) -> NodeAuthority:
    files = ensure_authority(directory, "berth.local")
    pem, key_pem = (
        (files.deploy_ca_certificate, files.deploy_ca_key) if deploy else (files.ca_certificate, files.ca_key)
    )
    key = load_pem_private_key(key_pem.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return NodeAuthority(x509.load_pem_x509_certificate(pem.read_bytes()), key, "berth.local", 100.0)


async def to_node(context: Context, authority: NodeAuthority, node: uuid.UUID) -> None:
    csr = signing_request()
    async with context.database.transaction() as tx:
        request = await record_request(
            tx, node, 1, predecessor=None, key_sha256=key_digest(read_signing_request(csr)), csr_pem=csr, evidence=None,
            request_id="r",
        )  # fmt: skip
    assert await issue_certificate(context.database, authority, request, node)


async def to_site_agent(context: Context, authority: NodeAuthority, node: uuid.UUID) -> None:
    token = secrets.token_urlsafe(16)
    async with context.database.transaction() as tx:
        agent = await agents.insert_agent(tx, await sites.insert_site(tx, "site-1", bytes(32)), "a")
        await insert_token(
            tx, node_id=agent, token_hash=sha256(token.encode()).digest(), hardware_id=None, created_by=uuid.uuid4(),
            valid_seconds=600.0, holder=Holder.SITE_AGENT,
        )  # fmt: skip
    with suppress(CertificatePending):
        await enrol_agent(
            context, token=token, hardware_id="h", csr_pem=signing_request(), request_id="r", wait_seconds_max=0.0
        )  # fmt: skip
    assert await issue_pending_of_agents(context.database, authority) == 1


async def to_deploy_system(context: Context, authority: NodeAuthority, node: uuid.UUID) -> None:
    sealer, csr = Sealer("key"), signing_request()
    made = await permit_deploy_system(context, admin_operation(), ADMIN, sealer, node, ORDER, ADDRESSES)
    medium = read_medium(sealer.open(body_of(made)["medium"]).encode())
    presented = Presented(medium.deploy_epoch, SMBIOS, [MAC], presented_key(csr))
    with suppress(CertificatePending):
        await enrol_deploy_system(
            context, DeployEnrolment(medium.token, presented, csr, None, "r"), wait_seconds_max=0
        )  # fmt: skip
    assert await issue_pending_deploy_systems(context.database, authority) == 1


HOLDERS: dict[str, tuple[Issue, str]] = {
    "node": (to_node, "select not_before, not_after from node_certificates"),
    "site agent": (to_site_agent, "select not_before, not_after from site_agent_certificates"),
    "deploy system": (to_deploy_system, "select pem from deploy_systems where pem is not null"),
}


def times_of(row: tuple[object, ...]) -> tuple[datetime, datetime]:
    """Begin and end, as stored or in the certificate itself."""
    if len(row) == 1:
        found = x509.load_pem_x509_certificate(str(row[0]).encode())
        return found.not_valid_before_utc, found.not_valid_after_utc
    begins, ends = row
    assert isinstance(begins, datetime)
    assert isinstance(ends, datetime)
    return begins, ends


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("step", STEPS, ids=["ahead", "behind"])
def test_a_certificate_counts_now_although_the_clock_of_the_issuer_has_stepped(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: str, step: timedelta
) -> None:
    issue, statement = HOLDERS[holder]
    node = seed(database_url, slice_nodes=0, metal_nodes=1).nodes[0].id
    if holder == "deploy system":
        rows_of(database_url, "update nodes set state = 'cordoned' returning id")
    authority = authority_of(tmp_path, deploy=holder == "deploy system")

    async def play() -> None:
        context = make_context(database_url).for_platform()
        try:
            await issue(context, authority, node)
        finally:
            await context.database.close()

    monkeypatch.setattr(certificates, "datetime", stepped(step))
    asyncio.run(play())
    (row,) = rows_of(database_url, statement)
    begins, ends = times_of(row)
    assert begins < datetime.now(UTC) < ends
