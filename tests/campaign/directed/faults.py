"""Scenes in which a fault shows a bug. Without the bug all is well, in the same fault."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from psycopg._preparing import PrepareManager

from berth.local.authority import Authority, ensure_authority
from node_agent.identity import new_key_pem
from node_agent.protocol import TaskType
from orchestrator.database.transactions import Database, connect_database
from orchestrator.edge import tls
from orchestrator.nodes.certificates import NodeAuthority
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import DatabaseUnavailable, OutcomeUnknown, Problem
from orchestrator.reservations.commands.expire import expire_reservation
from tests.allocations.driving import operation, release
from tests.allocations.seeding import Seeded, connect, create_allocation
from tests.campaign.directed.reservations import _hold, _try_hold, _with_seat, see_hold
from tests.campaign.directed.scene import Scene
from tests.campaign.faults.probing import accepted_although_expired, stalled_events
from tests.campaign.history import Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_tasks import EndedTask, check_refusals
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.agents import release as release_parameters
from tests.node_agent.control_plane import ControlPlane
from tests.testbuild.bugs_under_faults import clock_stepped

HOUR_SECONDS = 3600.0
TRIES = 4


def a_sweep_under_a_stepped_clock(scene: Scene) -> None:
    """The sweeper's wall clock steps by an hour while a hold has 15 minutes left."""
    seeded = _with_seat(scene)

    async def play(context: Context) -> None:
        reservation_id = await _hold(scene, context, seeded, ttl_seconds=900)
        with clock_stepped(HOUR_SECONDS):
            await expire_reservation(context, reservation_id)
        see_hold(scene, reservation_id)

    scene.run(play)


_END_SESSIONS = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""


def a_hold_after_its_session_was_ended(scene: Scene) -> None:
    """An operator ends every session; a client sends the same hold until its outcome is definite."""
    seeded = _with_seat(scene)

    async def play(context: Context) -> None:
        first = await _hold(scene, context, seeded, ttl_seconds=900)
        await expire_reservation(context, first)
        with connect(scene.url) as connection:
            connection.execute(_END_SESSIONS)
        await _until_definite(scene, lambda key: _hold_under(scene, context, seeded, key))

    scene.run(play)


async def _hold_under(scene: Scene, context: Context, seeded: Seeded, key: str) -> None:
    await _try_hold(scene, context, seeded, ("seat-0",), 900, None, None, operation(seeded, key))


async def _until_definite(scene: Scene, write: Callable[[str], Awaitable[None]]) -> None:
    key = uuid.uuid4().hex
    for _ in range(TRIES):
        try:
            await write(key)
        except OutcomeUnknown:
            scene.write("hold", key, key, Outcome.UNKNOWN)
        except DatabaseUnavailable:
            scene.write("hold", key, key, Outcome.NOT_DONE)
        else:
            return


_NO_ROOM = """
create function no_room() returns trigger language plpgsql as $$ begin
    raise exception 'could not extend file: No space left on device' using errcode = 'disk_full';
end $$;
create constraint trigger no_room after insert on outbox deferrable initially deferred
    for each row execute function no_room();
"""


def a_release_for_which_there_is_no_room(scene: Scene) -> None:
    """The disk is full when the transaction of a release commits; later there is room, and the client asks again."""
    seeded = scene.seed()
    allocation_id = create_allocation(scene.url, seeded)
    key = uuid.uuid4().hex

    async def ask(context: Context) -> Answer | None:
        try:
            answer = await release(context, seeded, allocation_id, key)
        except DatabaseUnavailable:
            scene.write("release", key, key, Outcome.NOT_DONE, allocation_id=allocation_id)
            return None
        scene.told("release", key, key, answer, allocation_id)
        return answer

    async def play(context: Context) -> None:
        await scene.provision(context, allocation_id)
        with connect(scene.url) as connection:
            connection.execute(_NO_ROOM.encode())
            answer = await ask(context)
            connection.execute("drop trigger no_room on outbox")
        if answer is None:
            await ask(context)
            await scene.clean_up(context, allocation_id)

    scene.run(play)


def a_read_after_its_table_was_locked(scene: Scene) -> None:
    """A client reads while another session holds the table, and again when that is over; all over one connection."""
    scene.seed()

    async def read(database: Database) -> None:
        try:
            async with database.read_one() as reading:
                await reading.execute("select count(*) from allocations")
        except Problem as problem:
            scene.history.count_read(f"get {problem.code}")
        except Exception:  # noqa: BLE001 - what the API answers with 500
            scene.history.count_read("get internal")

    async def play() -> None:
        database = connect_database(
            scene.url, pool_size=1, reserve_size=1, lock_timeout_seconds=0.2, transaction_timeout_seconds=5,
            application="scene",
        )  # fmt: skip
        try:
            # The last of these is to be prepared, which needs a lock on the table.
            for _ in range(PrepareManager.prepare_threshold or 0):
                await read(database.for_platform())
            with connect(scene.url) as other:
                other.execute("begin")
                other.execute("lock table allocations in access exclusive mode")
                await read(database.for_platform())
                other.execute("rollback")
            await read(database.for_platform())
        finally:
            await database.close()

    asyncio.run(play())


def a_log_beside_an_open_transaction(scene: Scene) -> None:
    """A session has written something and goes on, in the same database, while an allocation is created."""
    seeded = scene.seed()
    with connect(scene.url) as idle:
        idle.execute("begin")
        idle.execute("select pg_current_xact_id()")
        create_allocation(scene.url, seeded)
        scene.history.observed += stalled_events(scene.url)
        idle.execute("rollback")


async def a_task_under_a_stepped_clock(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> list[Violation]:
    """The clock of the server, and of the database, is an hour behind that of the node."""
    plane.clock_offset = -timedelta(seconds=HOUR_SECONDS)
    asked = plane.waits
    await plane.until(lambda: plane.waits > asked)
    body = plane.body(
        TaskType.VM_RELEASE, release_parameters([0]), uuid.uuid4(), expires_at=plane.now() + timedelta(minutes=10)
    )
    report = await plane.result_of(await plane.hand_out(body))
    if report.failure is None:
        return []
    refused = EndedTask(str(body.task_id), report.failure.code, report.failure.detail, plane.now(), body.expires_at)
    return list(check_refusals([refused]))


def a_node_whose_certificate_has_ended(directory: Path) -> list[Violation]:
    """An agent that was off for too long asks the listener for nodes."""
    secrets = directory / "secrets"
    secrets.mkdir()
    authority = ensure_authority(secrets, "berth.local")
    client_pem = directory / "client.pem"
    client_pem.write_text(_ended_certificate(authority))

    async def play() -> list[tuple[str, str]]:
        async with _listener(authority) as port:
            return await asyncio.to_thread(accepted_although_expired, client_pem, port)

    return [Violation(check, sentence) for check, sentence in asyncio.run(play())]


def _ended_certificate(authority: Authority) -> str:
    private_key_pem = new_key_pem()
    key = load_pem_private_key(private_key_pem.encode(), password=None).public_key()
    ca = x509.load_pem_x509_certificate(authority.ca_certificate.read_bytes())
    ca_key = load_pem_private_key(authority.ca_key.read_bytes(), password=None)
    issued = NodeAuthority(ca, ca_key, "berth.local", -30.0).issue(key, uuid.uuid4())  # type: ignore[arg-type]
    return issued.pem + private_key_pem


@asynccontextmanager
async def _listener(authority: Authority) -> AsyncIterator[int]:
    files = authority.listener_certificate, authority.listener_key, authority.ca_certificates
    context = tls.ReloadedContext(*files).current()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
