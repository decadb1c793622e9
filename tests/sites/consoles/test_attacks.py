"""Nothing but the agent that holds the lease of the machine's site, and was handed the session, gets it, and it loses it with the
lease."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from websockets.exceptions import ConnectionClosed

from node_agent.wire.console import WELCOME
from orchestrator.consoles.commands import issue_task, lease_machine_sessions
from orchestrator.consoles.site_store import note_attached
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.sites.store.bmc_tasks import Leased
from tests.allocations.driving import run_with
from tests.allocations.seeding import add_tenant, connect
from tests.consoles.talking import attached, begun, ending, message, output_until, refused
from tests.sites.consoles.agents import AgentLink, dialled
from tests.sites.consoles.staging import ConsoleSites, Rented
from tests.sites.stage import Site
from tests.support.waiting import wait_for

RUN_ID = uuid.UUID(int=7)
HOLD = """
update sites set lease_agent = %s, lease_run = %s, lease_fence = lease_fence + 1,
       lease_until = clock_timestamp() + interval '1 hour'
where id = %s returning lease_fence
"""
OPEN_RUN = """
with task as (
    insert into bmc_tasks (node_id, site_id, kind, requested_by, waits_for, waits_since, waits_until)
    values (%s, %s, 'look', 'test', 'lease', clock_timestamp(), clock_timestamp() + interval '1 hour') returning *
)
insert into deploy_runs (node_id, site_id, kind, medium, requested_by, bmc_task_id, waits_for, waits_since, waits_until)
select node_id, site_id, 'wipe', '{}', 'test', id, 'site_agent', waits_since, waits_until from task
"""
"""A run whose first task no agent performs."""
NEXT_LEASE = "update sites set lease_fence = lease_fence + 1 where id = cast(:id as uuid)"
LEASE_OF_BEFORE = "update sites set lease_fence = lease_fence - 1 where id = cast(:id as uuid)"
OPEN_TASK = """
insert into bmc_tasks (node_id, site_id, kind, requested_by, waits_for, waits_since, waits_until)
values (%s, %s, %s, 'test', 'lease', clock_timestamp(), clock_timestamp() + interval '1 hour')
"""
"""A task that no agent performs."""
KIND_OF_TASK = "update bmc_tasks set kind = %s where node_id = %s"
CHANGE_OF_BMC = """
update node_bmcs set changed_at = changed_at + make_interval(secs => :seconds) where node_id = cast(:id as uuid)
"""
ACTIVE = "update site_agents set state = 'active', epoch = 1 where id = %s"


@dataclass
class Waiting:
    """A session that waits for an agent, which the test plays."""

    rented: Rented
    site: Site
    session_id: str
    agent_id: str
    serial: str
    fence: int

    def lease(self, agent_id: str | None = None, serial: str | None = None) -> list[Leased]:
        """What the node listener hands to this agent."""

        async def work(context: Context) -> list[Leased]:
            return await lease_machine_sessions(
                context, uuid.UUID(agent_id or self.agent_id), serial or self.serial, RUN_ID, self.fence, 9
            )

        return run_with(self.rented.stage.url, work)

    @property
    def digest(self) -> str:
        (row,) = self.rented.sessions()
        return str(row["secret_sha256"])

    def dial(self, agent_id: str | None = None) -> AgentLink:
        """A connection with the certificate of this agent, which names the session and its hash."""
        stage = self.rented.stage
        link = dialled(stage, stage.certificate_of_agent(agent_id or self.agent_id))
        link.hello(self.session_id, self.digest)
        return link


def added(site: Site, name: str) -> str:
    """The id of an agent that has enrolled."""
    made = site.stage.admin.make(f"/admin/sites/{site.id}/agents", {"name": name})
    site.stage.fleet.connection.execute(ACTIVE, (made["agent_id"],))
    return str(made["agent_id"])


@contextmanager
def waiting(stage: ConsoleSites, site: Site) -> Iterator[Waiting]:
    """An agent of the test holds the lease of a site, and a tenant waits for the console of a machine."""
    agent = added(site, "played")
    serial = stage.certificate_of_agent(agent).stem
    with stage.rented(site) as rented:
        (row,) = stage.rows(HOLD, agent, RUN_ID, site.id)
        with attached(stage.api_url, rented.key, rented.allocation) as socket:
            session_id = str(message(socket)["session_id"])
            wait_for(lambda: rented.sessions()[0]["envelope"] is not None, "the worker signs the task")
            yield Waiting(rented, site, session_id, agent, serial, row["lease_fence"])


def is_refused(link: AgentLink) -> bool:
    return link.receive() is None


def is_welcome(link: AgentLink) -> bool:
    found = link.receive()
    return found is not None and found[0] == WELCOME


def test_another_tenants_machine_is_as_one_that_never_existed(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented:
        with connect(stage.url) as connection:
            rival = stage.tenant_key(add_tenant(connection, f"rival-{uuid.uuid4()}").tenant_id)
        status, document = refused(stage.api_url, rival, rented.allocation)
        assert (status, document["code"]) == (404, "not_found")
        assert rented.sessions() == []


def test_a_session_is_handed_out_once_and_to_the_holder_of_the_lease_alone(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        stranger = added(own_site, "other")
        assert found.lease(stranger, stage.certificate_of_agent(stranger).stem) == []
        elsewhere = stage.site()
        foreign = added(elsewhere, "foreign")
        assert found.lease(foreign, stage.certificate_of_agent(foreign).stem) == []
        assert len(found.lease()) == 1
        assert found.lease() == [], "a task is not handed out twice"


def test_only_the_agent_that_was_handed_the_session_joins_it(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        assert is_refused(found.dial()), "it was not handed out yet"
        assert len(found.lease()) == 1
        foreign = added(stage.site(), "foreign")
        assert is_refused(found.dial(foreign)), "another site's certificate"
        assert is_refused(found.dial(added(own_site, "other"))), "an agent of the site without the lease"
        assert is_refused(dialled_as_node(found)), "the node itself"
        wrong = dialled(stage, stage.certificate_of_agent(found.agent_id))
        wrong.hello(found.session_id, "0" * 64)
        assert is_refused(wrong), "a secret that is not that of the task"
        assert is_welcome(found.dial())
        assert is_refused(found.dial()), "the task is replayed"


def test_an_agent_that_lost_the_lease_does_not_join(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        assert len(found.lease()) == 1
        (row,) = found.rented.sessions()

        async def work(tx: Transaction) -> tuple[bool, bool]:
            """In one transaction, so that the process has not ended the session yet."""
            arguments = (row["id"], uuid.UUID(found.agent_id), row["process_id"])
            await tx.execute(NEXT_LEASE, {"id": own_site.id})
            before = await note_attached(tx, *arguments)
            await tx.execute(LEASE_OF_BEFORE, {"id": own_site.id})
            return before, await note_attached(tx, *arguments)

        joined = run_with(stage.url, lambda context: transact(context, work))
        assert joined == (False, True), "its lease is a newer one than that of the task"


def test_a_revoked_agent_does_not_join(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        assert len(found.lease()) == 1
        stage.execute(
            "update site_agent_certificates set revoked_at = clock_timestamp() where agent_id = %s", found.agent_id
        )
        link = dialled(stage, stage.certificate_of_agent(found.agent_id))
        stage.execute(
            "update site_agent_certificates set revoked_at = clock_timestamp() where agent_id = %s", found.agent_id
        )
        link.hello(found.session_id, found.digest)
        assert is_refused(link)


def test_a_session_of_a_site_that_lost_the_lease_is_ended(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        assert len(found.lease()) == 1
        link = found.dial()  # held open
        assert is_welcome(link)
        stage.rows(HOLD, found.agent_id, RUN_ID, own_site.id)
        assert found.rented.ended(found.session_id)["reason"] == "agent_lost"
        link.connection.close()


def test_an_opened_run_ends_a_session_whatever_its_agent_does(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        assert len(found.lease()) == 1
        link = found.dial()  # held open
        assert is_welcome(link)
        stage.execute(OPEN_RUN, found.rented.node_id, own_site.id)
        assert found.rented.ended(found.session_id)["reason"] == "guest_ended"
        link.connection.close()


def test_a_session_is_not_handed_out_while_a_run_is_open(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        stage.execute(OPEN_RUN, found.rented.node_id, own_site.id)
        assert found.lease() == []
        assert found.rented.ended(found.session_id)["reason"] == "guest_ended"


def test_a_session_is_not_handed_out_after_its_bmc_was_changed(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        found.rented.pin(own_site)
        assert found.lease() == []
        assert found.rented.ended(found.session_id)["reason"] == "guest_ended"


def test_a_session_is_not_joined_after_its_bmc_was_changed(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        assert len(found.lease()) == 1
        (row,) = found.rented.sessions()

        async def work(tx: Transaction) -> tuple[bool, bool]:
            """In one transaction, so that the process has not ended the session yet."""
            arguments = (row["id"], uuid.UUID(found.agent_id), row["process_id"])
            await tx.execute(CHANGE_OF_BMC, {"id": row["node_id"], "seconds": 3600})
            before = await note_attached(tx, *arguments)
            await tx.execute(CHANGE_OF_BMC, {"id": row["node_id"], "seconds": -3600})
            return before, await note_attached(tx, *arguments)

        joined = run_with(stage.url, lambda context: transact(context, work))
        assert joined == (False, True), "its task is of another BMC"


def test_a_session_does_not_begin_while_a_task_works_on_the_machine(stage: ConsoleSites, own_site: Site) -> None:
    with waiting(stage, own_site) as found:
        stage.execute(OPEN_TASK, found.rented.node_id, own_site.id, "rotate")
        assert found.lease() == []
        stage.execute(KIND_OF_TASK, "look", found.rented.node_id)
        assert len(found.lease()) == 1, "a look leaves the account and the machine as they are"
        stage.execute(KIND_OF_TASK, "rotate", found.rented.node_id)
        assert is_refused(found.dial())
        stage.execute(KIND_OF_TASK, "look", found.rented.node_id)
        assert is_welcome(found.dial())


def test_no_session_is_signed_while_a_task_works_on_the_machine(stage: ConsoleSites, own_site: Site) -> None:
    with stage.rented(own_site) as rented:
        stage.execute(OPEN_TASK, rented.node_id, own_site.id, "rotate")
        with attached(stage.api_url, rented.key, rented.allocation) as socket:
            session_id = uuid.UUID(str(message(socket)["session_id"]))
            assert run_with(stage.url, lambda context: issue_task(context, session_id, 15.0)) is False
            assert rented.sessions()[0]["envelope"] is None
            stage.execute(KIND_OF_TASK, "look", rented.node_id)
            wait_for(lambda: rented.sessions()[0]["envelope"] is not None, "the worker signs the task")


def dialled_as_node(found: Waiting) -> AgentLink:
    """The node of the machine, with a certificate and the hash."""
    stage = found.rented.stage
    key = ec.generate_private_key(ec.SECP256R1())
    issued = stage.authority_of_nodes.issue(key.public_key(), uuid.UUID(found.rented.node_id))
    path = stage.directory / f"{issued.serial}.pem"
    path.write_text(issued.pem + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    stage.execute(
        "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
        " select %s, id, epoch, %s, %s, %s from nodes where id = %s",
        issued.serial, issued.key_sha256, issued.not_before, issued.not_after, found.rented.node_id,
    )  # fmt: skip
    link = dialled(stage, path)
    link.hello(found.session_id, found.digest)
    return link


def test_a_killed_agent_ends_its_session_and_another_serves_the_next(stage: ConsoleSites, own_site: Site) -> None:
    first = own_site.agent("first")
    own_site.wait_for_holder("first")
    own_site.agent("second")
    with stage.rented(own_site) as rented:
        with attached(stage.api_url, rented.key, rented.allocation) as socket:
            begun(socket)
            socket.send(b"x\r")
            output_until(socket, b"said x\r\n")
            first.kill()
            assert ending(socket)[1] == "agent_lost"
        wait_for(rented.is_free, "the BMC has no session")
        own_site.wait_for_holder("second")
        with attached(stage.api_url, rented.key, rented.allocation) as socket:
            begun(socket)
            socket.send(b"y\r")
            output_until(socket, b"said y\r\n")


def test_an_agent_that_stood_still_beyond_its_lease_passes_nothing_on(stage: ConsoleSites, own_site: Site) -> None:
    first = own_site.agent("first")
    own_site.wait_for_holder("first")
    own_site.agent("second")
    with stage.rented(own_site) as rented, attached(stage.api_url, rented.key, rented.allocation) as socket:
        session = begun(socket)["session_id"]
        socket.send(b"x\r")
        output_until(socket, b"said x\r\n")
        assert first.child.process is not None
        os.kill(first.child.process.pid, signal.SIGSTOP)
        socket.send(b"typed in the freeze\r")
        stage.background.loop.call_soon_threadsafe(rented.console.print, b"of the deploy system\r\n")
        own_site.wait_for_holder("second")
        assert ending(socket)[1] == "agent_lost", "the lease has moved"
        assert rented.ended(session)["bytes_to_guest"] > len(b"x\r"), "the agent was sent what was typed"
        os.kill(first.child.process.pid, signal.SIGCONT)
        wait_for(rented.is_free, "its connection to the console is closed")
        assert bytes(rented.console.received) == b"x\r", "the agent has read what was typed, and has passed nothing on"
        assert rented.ended(session)["bytes_to_tenant"] == len(b"said x\r\n")


@pytest.mark.parametrize("point", ["bmc_task.after_accepted"])
def test_an_agent_killed_in_a_reset_leaves_no_console(stage: ConsoleSites, own_site: Site, point: str) -> None:
    """The agent dies as it is handed the first task after a session began; the next one performs that, and no byte passes."""
    first = own_site.agent("first", crash_at=f"{point}:1")
    own_site.wait_for_holder("first")
    own_site.agent("second")
    with stage.rented(own_site) as rented, attached(stage.api_url, rented.key, rented.allocation) as socket:
        begun(socket)
        socket.send(b"x\r")
        output_until(socket, b"said x\r\n")
        stage.request(rented.node_id, "reset")
        wait_for(first.died, "the agent dies")
        with suppress(ConnectionClosed):
            socket.send(b"typed after its death\r")
        assert ending(socket)[1] == "agent_lost"
        stage.ended(rented.node_id)
        assert rented.is_free()
        assert bytes(rented.console.received) == b"x\r"
