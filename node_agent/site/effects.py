"""What a task of a site does at a BMC, and its report. Each effect can be repeated from its start by any agent of the site."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

import structlog
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from berth.process.sealed_passwords import (
    DEPLOY_TOKEN_FORMAT,
    Purpose,
    SealBroken,
    new_password,
    seal_to_all,
    unseal,
)
from node_agent.clock import ServerClock
from node_agent.protocol import TaskBody, TaskType
from node_agent.redfish.contract import Bmc, BmcAccess, PowerOutcome, PowerState, SystemDescription, Working
from node_agent.redfish.problems import BmcProblem, CredentialsRefused, NotSettled, OutcomeUnknown
from node_agent.site import boots, power, resets
from node_agent.site.bmcs import Connect
from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.descriptions import inventory_of
from node_agent.site.images import SiteImages
from node_agent.site.lease import Lease, LeaseEnded
from node_agent.site.media import SiteMedia
from node_agent.site.ports import SitePorts
from node_agent.site.problems import NotDone
from node_agent.site.reaching import reach
from node_agent.site.updates import FirmwareUpdate
from node_agent.switches.contract import SwitchProblem, SwitchUnanswered
from node_agent.wire.deploy_medium import DeployMedium
from node_agent.wire.firmware import FirmwareProgress, FirmwareResult, StoredProgress, StoreProgress
from node_agent.wire.sites import (
    BmcPassword,
    BmcTaskFailure,
    BmcTaskParameters,
    BmcTaskReport,
    StoredPassword,
    StorePassword,
)
from node_agent.wire.switches import PortFound

log = structlog.get_logger("node_agent.site.effects")

Store = Callable[[UUID, StorePassword], Awaitable[StoredPassword]]
"""Stores a sealed password in the control plane. Returns only with its answer. Raises `StoreRefused`."""
Keep = Callable[[UUID, StoreProgress], Awaitable[StoredProgress]]
"""Stores how far an update is, or reads it. Returns only with the answer. Raises `StoreRefused`."""
DETAIL_LENGTH_MAX = 400
POWER: Final[Mapping[TaskType, Callable[[Bmc], Awaitable[PowerOutcome]]]] = {
    TaskType.METAL_POWER_ON: power.switch_on,
    TaskType.METAL_POWER_OFF: power.switch_off,
    TaskType.METAL_POWER_RESET: power.reset,
}
READING: Final = frozenset({TaskType.METAL_LOOK, TaskType.METAL_RESEAL, TaskType.METAL_REACH})
"""Tasks that change nothing at the BMC, so that their end without an answer is a failure."""
_T = TypeVar("_T")


class StoreRefused(Exception):
    """The control plane refuses what is to be stored: a password whose recipients are no longer those that the task names."""


@dataclass
class Evidence:
    """What a task has found so far, which its report has however it ends."""

    update: FirmwareUpdate | None = None

    @property
    def firmware(self) -> FirmwareResult | None:
        """What is known of an update."""
        return None if self.update is None else self.update.result


@dataclass(frozen=True)
class Order:
    """A task under the lease of its fence."""

    body: TaskBody
    parameters: BmcTaskParameters
    lease_fence: int
    evidence: Evidence = field(default_factory=Evidence)


class BmcEffects:
    """Performs tasks of one lease with this agent's private key, which opens what was sealed to it."""

    def __init__(
        self, agent_id: UUID, key: X25519PrivateKey, connect: Connect, lease: Lease, clock: ServerClock, store: Store,
        media: SiteMedia, keep: Keep, images: SiteImages, ports: SitePorts | None = None,
    ) -> None:  # fmt: skip
        self._agent_id = agent_id
        self._key = key
        self._connect = connect
        self._lease = lease
        self._clock = clock
        self._store = store
        self._media = media
        self._ports = ports or SitePorts({})
        self._keep = keep
        self._images = images
        self._quiet: set[UUID] = set()
        """Machines whose last command under this lease had its effect: none can be queued."""

    async def carry_out(self, order: Order) -> BmcTaskReport:
        """Perform the task and return its report. Raises `LeaseEnded`: then there is no report, and another agent goes on."""
        body = order.body
        try:
            async with asyncio.timeout(self._seconds_left(order)):
                if body.type is TaskType.METAL_LOOK:
                    return await self._look(order)
                if body.type is TaskType.METAL_RESEAL:
                    return await self._reseal(order)
                if body.type is TaskType.METAL_REACH:
                    return await self._reached_by_ssh(order)
                if body.type is TaskType.METAL_EJECT_MEDIUM:
                    return await self._eject(order)
                if body.type is TaskType.METAL_RESET_BMC:
                    return await self._bmc_reset(order)
                if body.type is TaskType.METAL_MOVE_PORTS:
                    return await self._ports_moved(order)
                if body.type is TaskType.METAL_FIRMWARE:
                    return await self._update(order)
                if body.type is TaskType.METAL_ROTATE_CREDENTIALS:
                    return await self._rotate(order)
                return await self._powered(order)
        except LeaseEnded:
            raise
        except OutcomeUnknown as unknown:
            return self._report(order, "unknown", code=unknown.code, detail=unknown.detail)
        except BmcProblem as problem:
            # A state that was not reached may still be: a command was sent, or another one is queued.
            outcome = "unknown" if isinstance(problem, NotSettled) else "failed"
            return self._report(order, outcome, code=problem.code, detail=problem.detail)
        except SwitchProblem as problem:
            # What was sent without an answer may have its effect; a switch that refuses has none.
            outcome = "unknown" if isinstance(problem, SwitchUnanswered) else "failed"
            return self._report(order, outcome, code=problem.code, detail=problem.detail)
        except NotDone as failure:
            return self._report(order, "failed", code=failure.code, detail=str(failure))
        except TimeoutError:
            outcome = "failed" if body.type in READING else "unknown"
            return self._report(
                order, outcome, code="deadline_passed", detail="the task did not end before its deadline"
            )
        except Exception as error:
            log.exception("bmc_task_defect", task_id=str(body.task_id))
            return self._report(order, "unknown", code="agent_error", detail=type(error).__name__)

    async def _look(self, order: Order) -> BmcTaskReport:
        generation, found = await self.with_password(order, lambda bmc: bmc.describe())
        return self._report(order, "completed", generation=generation, power_state=found.power_state.value, found=found)

    async def _bmc_reset(self, order: Order) -> BmcTaskReport:
        generation, found = await self.with_password(order, resets.reset_bmc)
        return self._report(order, "completed", generation=generation, power_state=found.power_state.value, found=found)

    async def _ports_moved(self, order: Order) -> BmcTaskReport:
        async def power() -> PowerState:
            _, found = await self.with_password(order, lambda bmc: bmc.power_state())
            return found.state

        found = await self._ports.carry_out(order.parameters.ports, order.body.fence, self._guard(order), power)
        return self._report(order, "completed", ports=found)

    def _guard(self, order: Order) -> Callable[[], None]:
        return lambda: self._lease.require(order.lease_fence)

    async def _update(self, order: Order) -> BmcTaskReport:
        """Update firmware, or go on with an update. The report has what was read, however it ends."""
        wanted, task_id = order.parameters.firmware, order.body.task_id
        if wanted is None:
            raise NotDone("no_order", "the task names no image")

        async def keep(progress: FirmwareProgress | None) -> FirmwareProgress | None:
            self._lease.require(order.lease_fence)
            body = StoreProgress(fence=order.body.fence, lease_fence=order.lease_fence, progress=progress)
            try:
                stored = await self._keep(task_id, body)
            except StoreRefused as refused:
                raise NotDone("progress_refused", str(refused)) from refused
            if not stored.stored:
                raise LeaseEnded("the control plane says that the task or the lease no longer counts")
            return stored.progress

        order.evidence.update = update = FirmwareUpdate(
            wanted,
            keep,
            lambda: self._images.served(wanted, task_id, order.lease_fence),
            lambda: self._seconds_left(order),
        )
        self._quiet.discard(order.body.node_id)
        generation, found = await self.with_password(order, update.run)
        power_state = None if found is None else found.power_state.value
        return self._report(order, "completed", generation=generation, power_state=power_state, found=found)

    def _seconds_left(self, order: Order) -> float:
        return (order.body.expires_at - self._clock.now()).total_seconds()

    async def _reached_by_ssh(self, order: Order) -> BmcTaskReport:
        server = order.parameters.reach
        if server is None:
            raise NotDone("no_server", "the task names no SSH server")
        await reach(server, self._seconds_left(order), lambda: self._lease.require(order.lease_fence))
        return self._report(order, "completed")

    async def _eject(self, order: Order) -> BmcTaskReport:
        """The medium is no longer served, and is ejected; the machine runs on without it."""
        self._media.withdraw(order.body.node_id)
        generation, _ = await self.with_password(order, boots.eject_medium)
        return self._report(order, "completed", generation=generation)

    async def _powered(self, order: Order) -> BmcTaskReport:
        """Perform what commands the power of the machine. Until it has ended well, a command may be queued."""
        await self._ports.require(order.parameters.ports, self._guard(order))
        node_id = order.body.node_id
        is_quiet = node_id in self._quiet
        self._quiet.discard(node_id)
        if order.body.type is TaskType.METAL_START_DEPLOY_SYSTEM:
            generation, outcome = await self._start(order, is_quiet)
        elif order.body.type is TaskType.METAL_END_DEPLOY_SYSTEM:
            self._media.withdraw(node_id)
            return await self._end(order, is_quiet)
        else:
            generation, outcome = await self.with_password(order, POWER[order.body.type], is_quiet)
        self._quiet.add(node_id)
        return self._report(order, "completed", generation=generation, power_state=outcome.state.value)

    async def _end(self, order: Order, is_quiet: bool) -> BmcTaskReport:
        """End the deploy system, and report what the BMC then says of the machine: with the versions of its firmware."""

        async def end(bmc: Bmc) -> tuple[PowerOutcome, SystemDescription | None]:
            return await boots.end_deploy_system(bmc), await boots.described(bmc)

        generation, (outcome, found) = await self.with_password(order, end, is_quiet)
        self._quiet.add(order.body.node_id)
        return self._report(order, "completed", generation=generation, power_state=outcome.state.value, found=found)

    async def _start(self, order: Order, is_quiet: bool) -> tuple[int, PowerOutcome]:
        """Start the deploy system. Its medium is served on unless the machine was certainly not switched on."""
        medium = self._medium(order)

        async def start(bmc: Bmc) -> PowerOutcome:
            return await boots.start_deploy_system(bmc, self._media, medium, order.lease_fence)

        try:
            return await self.with_password(order, start, is_quiet)
        except (OutcomeUnknown, NotSettled):
            raise
        except (BmcProblem, NotDone) as problem:
            self._media.withdraw(order.body.node_id)
            if isinstance(problem, NotDone) and problem.code == "machine_on":
                await self._ports.shut(order.parameters.ports, order.body.fence, self._guard(order))
            raise

    def _medium(self, order: Order) -> DeployMedium:
        """The configuration of the machine's medium, with the token that was sealed to this agent. Raises NotDone."""
        boot = order.parameters.boot
        if boot is None:
            raise NotDone("no_medium", "the task has no configuration of a medium")
        text = boot.token.get(self._agent_id)
        if text is None:
            raise NotDone("not_sealed", "the token of the deploy system is not sealed to this agent; request it again")
        site_id, node_id = order.parameters.site_id, order.body.node_id
        purpose = Purpose(site_id, node_id, boot.deploy_epoch, DEPLOY_TOKEN_FORMAT)
        try:
            token = unseal(text, purpose, self._agent_id, self._key)
            return DeployMedium.model_validate({**boot.model_dump(), "node_id": node_id, "token": token})
        except SealBroken as broken:
            raise NotDone("seal_broken", f"deploy epoch {boot.deploy_epoch}: {broken}") from broken

    async def with_password(
        self, order: Order, work: Callable[[Bmc], Awaitable[_T]], is_quiet: bool = False
    ) -> tuple[int, _T]:
        """Work with the first password that the BMC accepts; its generation, and the result."""
        refused: CredentialsRefused | None = None
        for password in order.parameters.passwords:
            try:
                async with self._reached(order, self.opened(order, password), is_quiet) as bmc:
                    return password.generation, await work(bmc)
            except CredentialsRefused as error:
                refused = error
        assert refused is not None, "a task names a password"
        raise refused

    @asynccontextmanager
    async def _reached(self, order: Order, password: str, is_quiet: bool) -> AsyncIterator[Bmc]:
        bmc = self._reach(order, password, is_quiet)
        try:
            yield bmc
        finally:
            await _close(bmc)

    async def _rotate(self, order: Order) -> BmcTaskReport:
        current, *pending = order.parameters.passwords
        old = self.opened(order, current)
        if pending:
            generation, new = pending[0].generation, self.opened(order, pending[0])
        else:
            generation, new = await self._stored_new(order, current.generation + 1)
        pass_point(CrashPoint.ROTATION_AFTER_STORED)
        bmc = self._reach(order, old)
        try:
            working = await bmc.rotate(new)
        finally:
            await _close(bmc)
        pass_point(CrashPoint.ROTATION_AFTER_CHANGED)
        if working is Working.NEW:
            return self._report(order, "completed", generation=generation)
        if working is Working.BOTH:
            detail = "the BMC accepts the new password, and the old one too; reset the BMC and rotate again"
            return self._report(order, "failed", generation=generation, code="old_password_accepted", detail=detail)
        if working is Working.OLD:
            detail = "the BMC accepts the old password only; the new one is kept and tried by the next rotation"
            return self._report(order, "failed", code="password_not_changed", detail=detail)
        raise CredentialsRefused("the BMC accepts neither the present password nor the new one")

    async def _stored_new(self, order: Order, generation: int) -> tuple[int, str]:
        """A new password that is stored before the BMC receives it: this agent's, or one that another agent stored first."""
        pass_point(CrashPoint.ROTATION_BEFORE_STORED)
        made = new_password()
        stored = await self._kept(order, generation, made)
        if stored.generation == generation and self._agent_id in stored.sealed:
            return generation, self.opened(order, BmcPassword(generation=generation, sealed=stored.sealed))
        raise _not_sealed(stored.generation)

    async def _reseal(self, order: Order) -> BmcTaskReport:
        for password in order.parameters.passwords:
            await self._kept(order, password.generation, self.opened(order, password))
        return self._report(order, "completed")

    async def _kept(self, order: Order, generation: int, password: str) -> StoredPassword:
        recipients = {one: bytes.fromhex(key) for one, key in order.parameters.recipients.items()}
        sealed = seal_to_all(password, self._purpose(order, generation), recipients)
        self._lease.require(order.lease_fence)
        body = StorePassword(
            fence=order.body.fence, lease_fence=order.lease_fence, generation=generation, sealed=sealed
        )
        try:
            stored = await self._store(order.body.task_id, body)
        except StoreRefused as refused:
            raise NotDone("password_refused", str(refused)) from refused
        if not stored.stored:
            raise LeaseEnded("the control plane says that the task or the lease no longer counts")
        return stored

    def opened(self, order: Order, password: BmcPassword) -> str:
        """The password itself. Raises NotDone."""
        text = password.sealed.get(self._agent_id)
        if text is None:
            raise _not_sealed(password.generation)
        try:
            return unseal(text, self._purpose(order, password.generation), self._agent_id, self._key)
        except SealBroken as broken:
            raise NotDone("seal_broken", f"generation {password.generation}: {broken}") from broken

    @staticmethod
    def _purpose(order: Order, generation: int) -> Purpose:
        return Purpose(order.parameters.site_id, order.body.node_id, generation)

    def _reach(self, order: Order, password: str, is_quiet: bool = False) -> Bmc:
        named = order.parameters
        access = BmcAccess(named.url, named.username, password, named.certificate_sha256, named.system_id)
        return self._connect(access, lambda: self._lease.require(order.lease_fence), is_quiet)

    @staticmethod
    def _report(
        order: Order, outcome: str, *, generation: int | None = None, power_state: str | None = None,
        found: SystemDescription | None = None, code: str | None = None, detail: str = "",
        ports: list[PortFound] | None = None,
    ) -> BmcTaskReport:  # fmt: skip
        failure = (
            None if code is None else BmcTaskFailure(code=code, detail=detail.replace("\0", "")[:DETAIL_LENGTH_MAX])
        )
        return BmcTaskReport(
            fence=order.body.fence, lease_fence=order.lease_fence, outcome=outcome, generation=generation,
            power_state=power_state, inventory=None if found is None else inventory_of(found), failure=failure, ports=ports,
            firmware=order.evidence.firmware,
        )  # fmt: skip


def _not_sealed(generation: int) -> NotDone:
    return NotDone("not_sealed", f"the password of generation {generation} is not sealed to this agent; reseal it")


async def _close(bmc: Bmc) -> None:
    """Close the client. After the lease nothing is sent, so the session ends by the BMC's own timeout."""
    try:
        await bmc.close()
    except LeaseEnded:
        log.info("bmc_session_left", why="the lease has ended")
