"""Asks each BMC of the site, again and again, whether it answers: nodes without an agent have no other sign of life.

The service root of Redfish needs no credentials (DMTF DSP0266). What is asked is the machine that was pinned: another certificate
is no answer. A BMC that answers says nothing about the tenant's system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal
from uuid import UUID

import httpx
import structlog

from node_agent.connection import CredentialsRefused, NodeConnection, RequestRefused, Unreachable
from node_agent.redfish.problems import CertificateChanged
from node_agent.redfish.tls import pinned_context
from node_agent.site.lease import Lease
from node_agent.site.metrics import SiteMetrics
from node_agent.wire.sites import MACHINES_MAX, LivenessAnswer, LivenessReport, SilentMachine, SiteMachine, SiteMachines

log = structlog.get_logger("node_agent.site")

SERVICE_ROOT: Final = "/redfish/v1/"
ANSWER_SECONDS_MAX: Final = 5.0
AT_ONCE_MAX: Final = 128
BEFORE_ALL: Final = UUID(int=0)

Silence = Literal["bmc_unreachable", "bmc_certificate_changed", "bmc_busy"]
Ask = Callable[[SiteMachine], Awaitable[Silence | None]]
"""Asks one BMC; None: it answered. Raises nothing."""


async def ask_bmc(machine: SiteMachine) -> Silence | None:
    """Read the service root over the pinned certificate, within `ANSWER_SECONDS_MAX`. Any answer below 500 is one."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            transport = httpx.AsyncHTTPTransport(
                verify=pinned_context(machine.certificate_sha256), trust_env=False,
                limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
            )  # fmt: skip
            async with transport:
                request = httpx.Request("GET", f"{machine.url}{SERVICE_ROOT}", headers={"accept": "application/json"})
                # The head alone: a BMC may send a body without an end.
                answer = await transport.handle_async_request(request)
                await answer.aclose()
    except CertificateChanged:
        return "bmc_certificate_changed"
    except (OSError, TimeoutError, httpx.HTTPError, httpx.InvalidURL, ValueError):
        return "bmc_unreachable"  # an address that cannot be used is one that does not answer
    return "bmc_busy" if answer.status_code >= 500 else None


class BmcLiveness:
    """Rounds over the BMCs of the site, a page after another, while this process holds the lease."""

    def __init__(
        self, run_id: UUID, lease: Lease, connection: NodeConnection, metrics: SiteMetrics, ask: Ask, every_seconds: float
    ) -> None:  # fmt: skip
        self._run_id = run_id
        self._lease = lease
        self._connection = connection
        self._metrics = metrics
        self._ask_bmc = ask
        self._every_seconds = every_seconds
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._silent: set[UUID] = set()
        self._answered_now = 0

    async def run(self) -> None:
        """One round after another; a round that cannot be reported is left, and the next one begins in time."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if self._lease.seconds_left() > 0:
                try:
                    await self._round(self._lease.fence)
                except (Unreachable, CredentialsRefused, RequestRefused) as error:
                    log.warning("request_failed", request="machines", why=str(error))
            await asyncio.sleep(max(0.0, began + self._every_seconds - loop.time()))

    async def _round(self, fence: int) -> None:
        """Ask those first that answered last time: what is silent takes its whole time, and must not make others late."""
        suspects = frozenset(self._silent)
        self._answered_now = 0
        for are_suspects in (False, True):
            if are_suspects and not suspects:
                break
            after: UUID | None = BEFORE_ALL
            while after is not None and self._lease.fence == fence and self._lease.seconds_left() > 0:
                after = await self._page(fence, after, suspects, are_suspects)
        self._metrics.answering.set(self._answered_now)
        self._metrics.silent.set(len(self._silent))

    async def _page(self, fence: int, after: UUID, suspects: frozenset[UUID], are_suspects: bool) -> UUID | None:
        """Ask the suspects of a page, or the others, and report; where the next page begins, None behind the last one."""
        wanted = [("run_id", str(self._run_id)), ("lease_fence", str(fence)), ("after", str(after))]
        page = await self._connection.get("/site/v1/machines", wanted, SiteMachines, 0.0)
        if not page.held or not page.machines:
            return None
        chosen = [machine for machine in page.machines if (machine.node_id in suspects) is are_suspects]
        found = await asyncio.gather(*(self._ask(machine) for machine in chosen))
        codes = {machine.node_id: code for machine, code in zip(chosen, found, strict=True)}
        report = LivenessReport(
            run_id=self._run_id, lease_fence=fence, listed_at=page.server_time,
            answered=[node for node, code in codes.items() if code is None],
            silent=[SilentMachine(node_id=node, code=code) for node, code in codes.items() if code is not None],
        )  # fmt: skip
        self._silent = (self._silent | {one.node_id for one in report.silent}) - set(report.answered)
        self._answered_now += len(report.answered)
        if chosen and not (await self._connection.post("/site/v1/machines/answers", report, LivenessAnswer)).held:
            return None
        return page.machines[-1].node_id if len(page.machines) == MACHINES_MAX else None

    async def _ask(self, machine: SiteMachine) -> Silence | None:
        async with self._at_once:
            return await self._ask_bmc(machine)
