"""Sessions of serial consoles of a site's machines under one lease: one for each machine, ended before its next task begins.

A session is no effect at the machine: it is not journaled, and neither repeated nor handed to the next holder of the lease. One
whose task is older than the newest about the machine is refused, as the console may no longer be its tenant's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from node_agent.bmc_consoles.machine_console import MachineConsole
from node_agent.clock import ServerClock
from node_agent.consoles.consoles import ConsoleRefused, Consoles, Session
from node_agent.consoles.dialing import DialFailed, dial
from node_agent.metrics import AgentMetrics
from node_agent.protocol import TaskType
from node_agent.redfish import contract
from node_agent.redfish.tls import host_and_port
from node_agent.site.effects import BmcEffects, Order
from node_agent.site.lease import Lease
from node_agent.site.metrics import SiteMetrics
from node_agent.site.problems import NotDone
from node_agent.wire.console import ConsoleParameters
from node_agent.wire.console import MachineConsole as MachineConsoleOrder

log = structlog.get_logger("node_agent.bmc_consoles")

SESSIONS_MAX: Final = 64
GONE: Final = "console_closed"
KEEPING: Final = frozenset({TaskType.METAL_LOOK, TaskType.METAL_RESEAL})
"""Tasks that leave a session as it is: they change nothing of the machine or of the account."""
END_SECONDS_MAX: Final = 5.0
DIAL_SECONDS: Final = 5.0
"""What is left of the time to connect, at the least, when the process is dialled."""


_Login = tuple[str, str, tuple[int, ...]]
"""The URL, the account, and the generations of its passwords."""


@dataclass(eq=False)
class _Serving:
    """The session of a machine."""

    allocation_id: UUID
    console: MachineConsole
    task: asyncio.Task[None] | None = None


class MachineSessions:
    """Serves sessions for the holder of the lease. `tls` returns the context of the agent's present identity."""

    def __init__(
        self, lease: Lease, clock: ServerClock, metrics: AgentMetrics, site_metrics: SiteMetrics,
        tls: Callable[[], ssl.SSLContext],
    ) -> None:  # fmt: skip
        self._lease = lease
        self._clock = clock
        self._metrics = site_metrics
        self._tls = tls
        self._consoles = Consoles(None, clock, metrics, tls)
        self._running: dict[UUID, _Serving] = {}
        self._held: set[UUID] = set()
        """Machines with a task that no session runs beside."""
        self._refused: dict[UUID, _Login] = {}
        """With what a machine's BMC refused the account, by Redfish or SSH. It is not tried again: refused logins can lock it."""

    @property
    def free(self) -> int:
        """How many more may begin."""
        return max(0, SESSIONS_MAX - len(self._running))

    def begin(self, group: asyncio.TaskGroup, order: Order, effects: BmcEffects) -> None:
        """Serve the session of an admitted task, in place of the machine's earlier one."""
        wanted, node_id = order.parameters.console, order.body.node_id
        if wanted is None:
            log.error("console_without_order", task_id=str(order.body.task_id))
            return
        serving = _Serving(wanted.attach.allocation_id, self._console_of(order, wanted, effects))
        before, self._running[node_id] = self._running.get(node_id), serving

        def forget(_: asyncio.Task[None]) -> None:
            if self._running.get(node_id) is serving:
                del self._running[node_id]

        serving.task = group.create_task(self._serve(order, wanted.attach, serving, before))
        serving.task.add_done_callback(forget)

    @asynccontextmanager
    async def ended(self, node_id: UUID, task: TaskType) -> AsyncIterator[None]:
        """End the session of the machine for a task, unless that may run beside it. Within the block no connection to the console
        is left or made, and no byte passes. One block at a time for each machine."""
        if task in KEEPING:
            yield
            return
        self._held.add(node_id)
        try:
            serving = self._running.get(node_id)
            if serving is not None:
                log.info("console_ended_by_task", node_id=str(node_id), type=task)
                await self._stop(serving, "guest_ended")
            yield
        finally:
            self._held.discard(node_id)

    def cancel(self) -> None:
        """Cancel all: the lease has ended."""
        for serving in self._running.values():
            if serving.task is not None:
                serving.task.cancel()

    async def _stop(self, serving: _Serving, reason: str) -> None:
        self._consoles.end(serving.allocation_id, reason)
        await serving.console.forbid()
        if serving.task is not None:
            await asyncio.wait({serving.task}, timeout=END_SECONDS_MAX)
            serving.task.cancel()
            await asyncio.wait({serving.task})

    async def _serve(self, order: Order, attach: ConsoleParameters, serving: _Serving, before: _Serving | None) -> None:
        """Serve it, and report nothing: its end is recorded by the process that the tenant is connected to."""
        node_id, session_id = str(order.body.node_id), str(attach.session_id)
        dial_seconds = (attach.dial_until - self._clock.now()).total_seconds()
        try:
            if before is not None:
                await self._stop(before, "superseded")
            if order.body.node_id in self._held:
                await serving.console.forbid()
            session = Session(order.body.fence, GONE)
            # The tenant is said to be attached when the console is open, if the BMC is quick enough for that.
            await serving.console.prepare(max(0.0, dial_seconds - DIAL_SECONDS))
            dial_seconds = (attach.dial_until - self._clock.now()).total_seconds()
            async with dial(attach, self._tls(), max(0.0, dial_seconds)) as link:
                report = await self._consoles.attach(session, order.body.expires_at, attach, link, serving.console)
        except DialFailed as failure:
            log.warning("console_not_dialled", node_id=node_id, session_id=session_id, why=str(failure))
            self._metrics.consoles.labels("not_dialled").inc()
        except Exception:
            log.exception("console_defect", node_id=node_id, session_id=session_id)
            self._metrics.consoles.labels("failed").inc()
        else:
            self._metrics.consoles.labels(report.reason).inc()
            log.info("bmc_console_ended", node_id=node_id, session_id=session_id, reason=report.reason)
        finally:
            await serving.console.forbid()  # a session that is cancelled may be about to log in

    def _console_of(self, order: Order, wanted: MachineConsoleOrder, effects: BmcEffects) -> MachineConsole:
        named = order.parameters
        login = named.url, named.username, tuple(one.generation for one in named.passwords)

        async def find() -> tuple[contract.SshConsole | None, str]:
            if self._refused.get(order.body.node_id) == login:
                raise ConsoleRefused("bmc_credentials_refused", "the BMC refused the account before")
            try:
                generation, found = await effects.with_password(order, lambda bmc: bmc.ssh_console())
            except NotDone as failure:
                raise ConsoleRefused("bmc_unreachable", f"{failure.code}: {failure}") from failure
            (password,) = (one for one in named.passwords if one.generation == generation)
            return found, effects.opened(order, password)

        def guard() -> None:
            self._lease.require(order.lease_fence)

        def refused() -> None:
            self._refused[order.body.node_id] = login

        return MachineConsole(
            host_and_port(named.url)[0], named.username, wanted.host_key, find, guard, shared_allowed=wanted.shared,
            login_refused=refused, lease_seconds=self._lease.seconds_left,
        )  # fmt: skip
