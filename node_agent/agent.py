"""The agent process: start, seven loops, stop. Constructs all parts.

Start: lock the state directory, read the journal, start guests again, obtain an identity, wait for the server, recover
interrupted tasks. Loops: tasks, heartbeat, identity, measurements, guests, their reachability, leases. An exception in a loop
ends the process. Guests outlive the process, however it ends, and the next one adopts them; `BERTH_AGENT_ENDS_GUESTS` makes an
orderly stop end them. `drivers/host_shutdown.py` ends them when the host goes down.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from datetime import datetime
from uuid import UUID, uuid4

import structlog

from berth.process.backoff import Backoff
from berth.process.health_server import serve_health
from berth.process.json_objects import JsonObject
from node_agent.admission import Trust
from node_agent.attestation.tpm import Tpm, remove_sessions
from node_agent.burn_in.bounds import Bounds
from node_agent.burn_in.burn_in import BurnIn
from node_agent.burn_in.disk import remove_remains
from node_agent.checks.start import features_now, require_fit_host
from node_agent.clock import ServerClock
from node_agent.connection import CredentialsRefused, NodeConnection, RequestRefused, Unreachable
from node_agent.consoles.consoles import Consoles
from node_agent.drivers.contract import Driver, Held, Inventory, disk_space_of
from node_agent.drivers.looking import Look
from node_agent.drivers.reachability import Reachability
from node_agent.drivers.restarting import RestartLimits, Restarts
from node_agent.drivers.spanning import OtherNodes
from node_agent.durable_files import DirectoryOwnership, make_private_directory
from node_agent.effects import Effects
from node_agent.enrolment import Enrolment
from node_agent.executor import Executor
from node_agent.gpu_reset.gpu_reset import GpuReset
from node_agent.identity import IdentityStore
from node_agent.journal import Journal
from node_agent.key_sets import KeySets
from node_agent.maintenance.plugins import MaintenancePlugins
from node_agent.metrics import AgentMetrics
from node_agent.probes.probe import Prober
from node_agent.problems import CannotStart
from node_agent.protocol import (
    HELD_ALLOCATIONS_MAX,
    Heartbeat,
    HeartbeatAnswer,
    HeldAllocation,
    HeldInventory,
    WaitAnswer,
)
from node_agent.reporter import Reporter
from node_agent.settings import Settings
from node_agent.wiping.build import agent_version
from node_agent.wiping.proofs import WipeProofs
from node_agent.wiping.signing import StatementSigner
from node_agent.wire.features import FEATURES
from node_agent.wire.guests import GuestReport

log = structlog.get_logger("node_agent")

REFUSALS_MAX = 5
IDENTITY_CHECK_SECONDS = 2.0
RENEWAL_PAUSE_SECONDS = 1.0
MEASURE_SECONDS = 5.0
LEASE_RENEWALS = 3


class Agent:
    """The agent of one node. Construct it in a running event loop; `run` returns after an orderly stop."""

    def __init__(self, settings: Settings, choose_driver: Callable[[Settings], Driver]) -> None:
        """Lock the state directory, open the journal, construct the driver. Raises CannotStart, JournalUnwritable, OSError."""
        make_private_directory(settings.agent_state_dir)
        self._ownership = DirectoryOwnership(settings.agent_state_dir)
        remove_remains(settings.agent_state_dir)
        self._settings = settings
        self._metrics = AgentMetrics()
        self._clock = ServerClock()
        self._journal = Journal(
            settings.agent_state_dir / "journal", self._metrics, settings.agent_reports_kept_seconds
        )
        self._driver = choose_driver(settings)
        self._restarts = Restarts(self._driver, self._metrics, _restart_limits(settings))
        self._store = store = IdentityStore(settings.agent_state_dir)
        self._connection = NodeConnection(store, self._clock, self._metrics, settings.node_api_url)
        self._key_sets = KeySets(settings.agent_state_dir, settings.root_keys_file, self._metrics)
        remove_sessions(store.directory)
        self._tpm = tpm = Tpm(settings.tpm_tcti, store.directory) if settings.tpm_tcti else None
        self._enrolment = Enrolment(settings, store, self._key_sets, self._clock, self._connection, tpm)
        self._key_set_wanted = False
        self._stopping = asyncio.Event()
        self._refusals_in_a_row = 0
        self._executor: Executor | None = None
        self._heartbeat_answered_at: datetime | None = None
        self._last_held: list[UUID] = []
        self._last_seen = Inventory([], {})
        self._look = Look(self._driver)
        self._reachability = Reachability(self._driver, settings.agent_unreachable_seconds)
        self._beating = asyncio.Lock()
        self._other_nodes = OtherNodes(self._driver, settings.underlay())
        self._run_id = uuid4()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises AgentProblem with one sentence that names the reason."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        life = asyncio.create_task(self._live())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((life, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if life.done():
            life.result()
            return
        log.info("stopping")
        life.cancel()
        await asyncio.wait((life,))
        await self._restarts.stop()
        if self._settings.agent_ends_guests:
            await self._driver.stop(self._settings.agent_stop_seconds)
        else:
            await self._driver.close()
        await self._connection.close()
        self._journal.close()
        self._ownership.close()
        log.info("stopped")

    async def _live(self) -> None:
        with serve_health(
            self._settings.metrics_host, self._settings.metrics_port, self._metrics.registry, self._state
        ):
            await self._start_and_serve()

    async def _start_and_serve(self) -> None:
        await require_fit_host(self._settings)
        await self._driver.start()
        resumed = await self._driver.resume()
        log.info("resumed", driver=self._driver.name, allocations=len(resumed), journal_entries=self._journal.entries)
        await self._enrolment.establish()
        await self._first_contact()
        reporter = Reporter(self._connection, self._journal, self._metrics)
        async with asyncio.TaskGroup() as group:
            executor = Executor(
                group, self._trust(), self._journal, self._clock,
                self._effects(), reporter, self._connection, self._metrics,
                self._settings.agent_tasks_max,
            )  # fmt: skip
            executor.recover()
            self._executor = executor
            group.create_task(self._take_tasks(executor))
            group.create_task(self._send_heartbeats())
            group.create_task(self._keep_identity(executor))
            group.create_task(self._measure())
            group.create_task(self._watch_guests(executor))
            group.create_task(self._watch_reachability())
            group.create_task(self._tend_leases())

    def _effects(self) -> Effects:
        statements = StatementSigner(self._store, self._clock, self._driver.name)
        prober = Prober(
            self._driver.name, self._settings.agent_probe_plugins_dir, self._settings.agent_probe_plugin_seconds
        )
        burn_in = BurnIn(self._driver.name, _burn_in_bounds(self._settings))
        gpu_reset = GpuReset(self._driver.name)
        plugins = MaintenancePlugins(
            self._settings.agent_maintenance_plugins_dir, self._settings.agent_state_dir / "maintenance"
        )
        consoles = Consoles(self._driver, self._clock, self._metrics, self._connection.tls)
        return Effects(
            self._driver, self._metrics, self._restarts, WipeProofs(self._journal), statements, prober, burn_in,
            gpu_reset, self._clock, consoles, plugins, self._tpm,
        )  # fmt: skip

    async def _first_contact(self) -> None:
        deadline = time.monotonic() + self._settings.agent_startup_seconds
        backoff = Backoff(most_seconds=2.0)
        while True:
            try:
                answer = await self._heartbeat()
                await self._enrolment.require_key_set()
            except CredentialsRefused as refused:
                self._refusals_in_a_row += 1
                if self._refusals_in_a_row >= REFUSALS_MAX:
                    await self._enrolment.enrol_again(f"the server refuses this node's certificate ({refused})")
                    self._refusals_in_a_row = 0
                why = str(refused)
            except Unreachable as error:
                await self._enrolment.replace_if_expired()
                why = str(error)
            except RequestRefused as refused:
                why = str(refused)
            else:
                log.info("serving", node_id=str(self._enrolment.identity.credentials.node_id), state=answer.node_state)
                return
            if time.monotonic() >= deadline:
                waited = f"waited {self._settings.agent_startup_seconds:.0f} s for the node listener"
                raise CannotStart(f"{waited} {self._connection.url}: {why}")
            log.info("waiting", for_what="node listener", why=why)
            await asyncio.sleep(backoff.next_seconds())

    async def _take_tasks(self, executor: Executor) -> None:
        backoff = Backoff(most_seconds=5.0)
        while True:
            if executor.full:
                await asyncio.sleep(backoff.next_seconds())
                continue
            known = executor.known()
            wait_seconds = self._settings.agent_wait_seconds
            params = [("timeout_seconds", str(wait_seconds)), *(("known", str(task)) for task in known)]
            asked_at = time.monotonic()
            try:
                answer = await self._connection.get("/node/v1/tasks/wait", params, WaitAnswer, wait_seconds)
            except (Unreachable, CredentialsRefused, RequestRefused) as error:
                self._note(error, "tasks")
                await asyncio.sleep(backoff.next_seconds())
                continue
            self._refusals_in_a_row = 0
            if await executor.accept(answer.tasks) or time.monotonic() - asked_at >= wait_seconds / 2:
                backoff.reset()
            else:
                # An immediate empty response (the server stops, or is defective) must not make this loop spin.
                await asyncio.sleep(backoff.next_seconds())

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._settings.agent_heartbeat_seconds)
            try:
                await self._heartbeat()
            except (Unreachable, CredentialsRefused, RequestRefused) as error:
                self._note(error, "heartbeat")

    async def _keep_identity(self, executor: Executor) -> None:
        backoff = Backoff(first_seconds=1.0, most_seconds=IDENTITY_CHECK_SECONDS)
        while True:
            useless = self._why_identity_is_useless()
            if useless is not None:
                await self._enrolment.enrol_again(useless)
                self._refusals_in_a_row = 0
            elif self._enrolment.seconds_until_renewal() <= 0 or executor.keys_wanted.is_set() or self._key_set_wanted:
                try:
                    if self._enrolment.seconds_until_renewal() <= 0:
                        await self._enrolment.renew()
                    else:
                        await self._enrolment.fetch_key_set()
                except (Unreachable, CredentialsRefused, RequestRefused) as error:
                    self._note(error, "renewal")
                    await asyncio.sleep(min(backoff.next_seconds(), max(0.1, self._enrolment.seconds_left() / 4)))
                    continue
                executor.keys_wanted.clear()
                self._key_set_wanted = False
            backoff.reset()
            executor.take_trust(self._trust())
            pause = min(self._enrolment.seconds_until_renewal(), IDENTITY_CHECK_SECONDS)
            await asyncio.sleep(max(RENEWAL_PAUSE_SECONDS, pause))

    def _trust(self) -> Trust:
        return Trust.of(self._enrolment.identity.credentials, self._enrolment.key_set)

    def _why_identity_is_useless(self) -> str | None:
        if self._enrolment.expired():
            return "this node's certificate has expired"
        if self._refusals_in_a_row >= REFUSALS_MAX:
            return "the server refuses this node's certificate"
        return None

    async def _measure(self) -> None:
        while True:
            self._metrics.contact_age.set(self._clock.seconds_since_contact())
            self._metrics.certificate_left.set(self._enrolment.seconds_left())
            self._metrics.note_disk_space(disk_space_of(self._driver))
            await asyncio.sleep(MEASURE_SECONDS)

    async def _watch_guests(self, executor: Executor) -> None:
        look = Look(self._driver)
        while True:
            if (inventory := self._noted(await look())) is not None:
                self._metrics.guests.set(len(inventory.allocations))
                if self._restarts.notice(inventory):
                    # The control plane learns of it before a restart hides it. It counts only what was gathered after a time
                    # that it named: the first heartbeat asks for one.
                    try:
                        await self._heartbeat()
                        await self._heartbeat()
                    except (Unreachable, CredentialsRefused, RequestRefused) as error:
                        self._note(error, "heartbeat")
                if executor.recovered:
                    self._restarts.start_due(inventory)
            await asyncio.sleep(self._settings.agent_guest_check_seconds)

    async def _watch_reachability(self) -> None:
        while True:
            await self._reachability.check(self._last_seen)
            await asyncio.sleep(self._reachability.pause_seconds)

    async def _tend_leases(self) -> None:
        while True:
            try:
                self._metrics.leases_cleared.inc(len(await self._driver.tend_leases()))
            except OSError as error:
                log.error("leases_not_tended", why=str(error))
            await self._other_nodes.pause(self._settings.agent_lease_seconds / LEASE_RENEWALS)

    async def _heartbeat(self) -> HeartbeatAnswer:
        # One at a time: an older inventory never arrives after a newer one.
        async with self._beating:
            return await self._beat()

    async def _beat(self) -> HeartbeatAnswer:
        gathered_after = self._heartbeat_answered_at
        inventory = self._noted(await self._look())
        beat = Heartbeat(
            agent_version=agent_version(),
            driver=self._driver.name,
            allocations=self._last_held[:HELD_ALLOCATIONS_MAX],
            inventory=inventory and self._complete(inventory, gathered_after),
            journal_entries=self._journal.entries,
            key_set_serial=self._key_sets.serial,
            key_set_refusal=self._key_sets.refusal,
            agent_run=self._run_id,
            features=[*FEATURES, *features_now(self._settings)],
            span=self._other_nodes.report(),
        )
        answer = await self._connection.post("/node/v1/heartbeat", beat, HeartbeatAnswer)
        self._heartbeat_answered_at = answer.server_time
        self._key_set_wanted = self._key_sets.is_wanted(answer.key_set_serial)
        self._refusals_in_a_row = 0
        self._other_nodes.take(answer.span)
        return answer

    def _noted(self, inventory: Inventory | None) -> Inventory | None:
        if inventory is not None:
            self._last_held = inventory.allocations
            self._last_seen = inventory
        return inventory

    def _complete(self, inventory: Inventory, gathered_after: datetime | None) -> HeldInventory | None:
        """Return the inventory if it is complete, gathered after a known server time, and recovery has ended."""
        started_up = self._executor is not None and self._executor.recovered
        if gathered_after is None or not started_up or len(inventory.held) > HELD_ALLOCATIONS_MAX:
            return None
        held = [
            HeldAllocation(
                allocation_id=h.allocation_id, slots=list(h.slots), fence=h.fence, state=self._report_of(h),
                first_boot=h.first_boot,
            )
            for h in inventory.held
        ]  # fmt: skip
        return HeldInventory(gathered_after=gathered_after, allocations=held)

    def _report_of(self, held: Held) -> GuestReport | None:
        report = self._restarts.report_of(held)
        is_silent = report is GuestReport.RUNNING and self._reachability.is_unreachable(held.allocation_id)
        return GuestReport.UNREACHABLE if is_silent else report

    def _note(self, error: Exception, what: str) -> None:
        if isinstance(error, CredentialsRefused):
            self._refusals_in_a_row += 1
        log.warning("request_failed", request=what, why=str(error))

    def _state(self) -> JsonObject:
        age = self._clock.seconds_since_contact()
        return {
            "ok": True,
            "driver": self._driver.name,
            "last_contact_age_seconds": round(age, 3) if self._clock.known else None,
            "unreported_tasks": self._journal.unreported,
        }


def _restart_limits(settings: Settings) -> RestartLimits:
    return RestartLimits(
        settings.agent_restart_attempts_max,
        settings.agent_restart_first_seconds,
        settings.agent_restart_seconds_max,
        settings.agent_restart_steady_seconds,
    )


def _burn_in_bounds(settings: Settings) -> Bounds:
    return Bounds(
        directory=settings.agent_state_dir,
        memory_bytes_max=settings.agent_burn_in_memory_bytes_max,
        disk_bytes_max=settings.agent_burn_in_disk_bytes_max,
        cpu_seconds=settings.agent_burn_in_cpu_seconds,
        dcgm_level=settings.agent_burn_in_dcgm_level,
        plugins=settings.agent_burn_in_plugins_dir,
        plugin_seconds=settings.agent_burn_in_plugin_seconds,
    )
