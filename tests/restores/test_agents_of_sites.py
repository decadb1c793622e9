"""Agents of sites after a restore: one that was renewed in the lost interval is let in, one that was revoked in it is not."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from berth.cli.deployment.restore.lost_kinds import End, end_of
from berth.local.authority import ensure_authority
from berth.local.servers import LocalPostgres
from orchestrator.nodes.certificates import NodeAuthority
from orchestrator.nodes.store.certificates import require_standing
from orchestrator.nodes.store.enrolment import insert_token
from orchestrator.nodes.store.holders import Holder
from orchestrator.operations.execution import Context
from orchestrator.problems import CertificatePending, IdentityConflict, Unauthenticated
from orchestrator.sites.commands.agents import enrol_agent, renew_agent_certificate, revoke_agent
from orchestrator.sites.commands.issuance import issue_pending_of_agents
from orchestrator.sites.store import agents, sites
from tests.allocations.driving import ADMIN, rows_of, run_with
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import connect
from tests.api.calling import signing_request
from tests.berth.commands import berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.restores.publishing import publish

NAMES = ("renewed", "revoked", "again", "forked", "untouched")
HARDWARE = "host-1"


@dataclass
class SiteAgents:
    """A site with agents, and the issuer. `serials`: of each agent, in the order of their issuance."""

    url: str
    authority: NodeAuthority
    site: uuid.UUID = field(default_factory=uuid.uuid4)
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    serials: dict[str, list[str]] = field(default_factory=dict)

    def make(self) -> None:
        """The site, and an agent of each name with its first certificate."""

        async def play(context: Context) -> None:
            async with context.database.transaction() as tx:
                self.site = await sites.insert_site(tx, "site-1", bytes(32))
                self.ids = {name: await agents.insert_agent(tx, self.site, name) for name in NAMES}

        run_with(self.url, play)
        for name in NAMES:
            self.enrol(name)

    def enrol(self, name: str) -> None:
        """The agent enrols with a new token, in its next epoch."""
        token = secrets.token_urlsafe(16)

        async def play(context: Context) -> None:
            async with context.database.transaction() as tx:
                await insert_token(
                    tx, node_id=self.ids[name], token_hash=sha256(token.encode()).digest(), hardware_id=None,
                    created_by=uuid.uuid4(), valid_seconds=600.0, holder=Holder.SITE_AGENT,
                )  # fmt: skip
            with suppress(CertificatePending):
                await enrol_agent(
                    context, token=token, hardware_id=HARDWARE, csr_pem=signing_request(), request_id="r",
                    wait_seconds_max=0.0,
                )  # fmt: skip
            assert await issue_pending_of_agents(context.database, self.authority) == 1

        run_with(self.url, play)
        self._note(name)

    def renew(self, name: str, *, of: int = -1) -> None:
        """The agent gets the successor of its newest certificate, or tries to get one of an earlier one."""

        async def play(context: Context) -> None:
            with suppress(CertificatePending):
                await renew_agent_certificate(
                    context, self.ids[name], self.serials[name][of], csr_pem=signing_request(), request_id="r",
                    wait_seconds_max=0.0,
                )  # fmt: skip
            assert await issue_pending_of_agents(context.database, self.authority) == 1

        run_with(self.url, play)
        self._note(name)

    def fork(self, name: str) -> None:
        """Another key asks for the successor that a certificate has."""
        with pytest.raises(IdentityConflict):
            self.renew(name, of=0)

    def revoke(self, name: str) -> None:
        """An operator revokes the agent."""
        run_with(
            self.url,
            lambda context: revoke_agent(context, admin_operation(), ADMIN, self.site, self.ids[name], reason="stolen"),
        )

    def _note(self, name: str) -> None:
        newest = "select serial from site_agent_certificates where agent_id = %s order by issued_at desc limit 1"
        ((serial,),) = rows_of(self.url, newest, self.ids[name])
        self.serials.setdefault(name, []).append(serial)


@dataclass
class Past:
    """The restored database, and what the agents present."""

    url: str
    nats_url: str
    agents: SiteAgents

    def berth(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = berth(*arguments, BERTH_DATABASE_URL=self.url, BERTH_NATS_URL=self.nats_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def let_in(self) -> dict[str, list[bool]]:
        """For each certificate of each agent whether it counts."""
        return {
            name: [self._counts(self.agents.ids[name], serial) for serial in serials]
            for name, serials in self.agents.serials.items()
        }

    def _counts(self, agent: uuid.UUID, serial: str) -> bool:
        async def play(context: Context) -> bool:
            async with context.database.reading() as reading:
                with suppress(Unauthenticated):
                    await require_standing(reading, agent, serial, Holder.SITE_AGENT)
                    return True
            return False

        return run_with(self.url, play)


@pytest.fixture
def past(postgres_server: LocalPostgres, database_url: str, nats_url: str, tmp_path: Path) -> Iterator[Past]:
    """A database from before all but one agent were renewed, revoked, enrolled again or suspended."""
    files = ensure_authority(tmp_path, "berth.local")
    key = load_pem_private_key(files.ca_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(files.ca_certificate.read_bytes())
    made = SiteAgents(database_url, NodeAuthority(certificate, key, "berth.local", 3600.0))
    made.make()
    publish(database_url, nats_url)
    with copied_database(postgres_server, database_url.rpartition("/")[2]) as url:
        made.renew("renewed")
        made.renew("renewed")
        made.renew("revoked")
        made.revoke("revoked")
        made.enrol("again")
        made.renew("forked")
        made.fork("forked")
        publish(database_url, nats_url)
        yield Past(url, nats_url, made)


def test_a_renewed_agent_is_let_in_and_one_that_was_revoked_is_revoked_again(past: Past, tmp_path: Path) -> None:
    with connect(past.url) as connection:
        connection.execute(
            "insert into site_agent_tokens (agent_id, token_hash, created_by, expires_at)"
            " values (%s, sha256('left'), gen_random_uuid(), now() + interval '1 hour')",
            (past.agents.ids["revoked"],),
        )
    past.berth("restore", "begin")
    past.berth("restore", "export", "--to", str(tmp_path / "lost"))
    printed = past.berth("restore", "run")
    assert "and 3 agents of sites, that were revoked in the lost interval are revoked again" in printed
    assert "and 2 of agents of sites, that were issued in the lost interval are adopted" in printed
    assert past.let_in() == {
        "renewed": [True, True, True], "revoked": [False, False], "again": [False, False], "forked": [False, False],
        "untouched": [True],
    }  # fmt: skip
    columns = "serial, agent_epoch, key_sha256, not_before, not_after, predecessor, pem, authority_key_sha256"
    compared = f"select {columns} from site_agent_certificates where agent_id = %s order by not_before, serial"
    renewed = past.agents.ids["renewed"]
    assert rows_of(past.url, compared, renewed) == rows_of(past.agents.url, compared, renewed)
    retired = rows_of(past.url, "select name from site_agents where state = 'retired' order by name")
    assert retired == [("again",), ("forked",), ("revoked",)]
    audited = rows_of(
        past.url, "select action from audit where principal_id = 'berth restore' and starts_with(action, 'site.')"
    )
    assert sorted(audited) == [("site.adopt_certificate",)] * 2 + [("site.revoke_agent",)] * 3
    # A token from before its revocation counts no more, and its next renewal goes on from the adopted certificate.
    run_with(past.url, lambda context: _is_refused(context, "left"))
    after = SiteAgents(past.url, past.agents.authority, past.agents.site, past.agents.ids, past.agents.serials)
    after.renew("renewed")
    assert past.let_in()["renewed"] == [True] * 4
    run_with(past.url, lambda context: _invite_again(context, past.agents.ids["revoked"]))
    run_with(past.url, lambda context: _is_refused(context, "left"))
    assert past.let_in()["revoked"] == [False, False], "it needs the certificate of another enrolment"
    report = [json.loads(line) for line in (tmp_path / "lost/report.ndjson").read_text().splitlines()]
    steps = {(line["kind"], line["replayed"]): line["next_step"] for line in report}
    assert "adopts" in steps["site_certificate_issued", True]
    assert "enrol the agent again" in steps["site_certificate_issued", False], "of an epoch that the database lacks"
    assert "revokes the agent again" in steps["site_agent_revoked", True]


async def _invite_again(context: Context, agent: uuid.UUID) -> None:
    async with context.database.transaction() as tx:
        await agents.register_again(tx, agent)


async def _is_refused(context: Context, token: str) -> None:
    with pytest.raises(Unauthenticated):
        await enrol_agent(
            context, token=token, hardware_id=HARDWARE, csr_pem=signing_request(), request_id="r", wait_seconds_max=0.0
        )


def test_without_an_export_an_agent_that_was_renewed_is_refused(past: Past) -> None:
    past.berth("restore", "run", "--without-export", NO_NATS)
    assert past.let_in() == {
        "renewed": [True, False, False], "revoked": [True, False], "again": [True, False], "forked": [True, False],
        "untouched": [True],
    }  # fmt: skip


def test_no_token_of_a_revoked_agent_counts_after_its_next_invitation(past: Past) -> None:
    made = past.agents
    with connect(made.url) as connection:
        connection.execute(
            "insert into site_agent_tokens (agent_id, token_hash, created_by, expires_at)"
            " values (%s, sha256('left'), gen_random_uuid(), now() + interval '1 hour')",
            (made.ids["untouched"],),
        )
    made.revoke("untouched")
    run_with(made.url, lambda context: _invite_again(context, made.ids["untouched"]))
    run_with(made.url, lambda context: _is_refused(context, "left"))
    assert rows_of(made.url, "select count(*) from site_agent_tokens where used_at is null") == [(0,)]


def test_an_agent_is_named_by_its_subject_and_a_certificate_by_its_event() -> None:
    agent, event = uuid.UUID(int=1), str(uuid.UUID(int=2))
    for event_type in ("site.agent_revoked", "site.identity_conflict", "site.agent_enrolled"):
        assert end_of(event_type, f"site-agents/{agent}", {}, event) == End("site_agent", agent)
    found = end_of("site.certificate_issued", f"site-agents/{agent}", {}, event)
    assert found == End("adopt_agent", uuid.UUID(event))
