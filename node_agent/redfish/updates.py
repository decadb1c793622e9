"""An update of firmware in steps that another process can go on with: sent once, its task followed, the versions read.

Nothing but `begin` changes the BMC. A BMC may restart at any time, refuse a login while it does, and forget its tasks.
"""

from __future__ import annotations

from typing import Final

from node_agent.redfish.contract import BegunUpdate, FirmwareItem, ResetNeed
from node_agent.redfish.firmware import inventory, send_update
from node_agent.redfish.machine import Machine
from node_agent.redfish.problems import (
    AnswerUnreadable,
    BmcProblem,
    Busy,
    CertificateChanged,
    CredentialsRefused,
    NotBack,
    NotSupported,
    OutcomeUnknown,
    Unreachable,
)
from node_agent.redfish.session import Session
from node_agent.redfish.tasks import ended_at_once, poll, task_of

TASKS_MAX: Final = 64
LOGINS_REFUSED_MAX: Final = 2
"""A BMC may refuse logins while it starts; more refused ones lock an account."""
POLL_SECONDS: Final = 5.0
"""At least: an update takes minutes, and some BMCs answer slowly meanwhile."""


async def begin(session: Session, image_url: str, targets: tuple[FirmwareItem, ...]) -> BegunUpdate:
    """See `Bmc.begin_update`."""
    answer = await send_update(session, image_url, tuple(target.path for target in targets))
    task = task_of(session, answer)
    if task is None:
        ended_at_once(answer)
    return BegunUpdate(task)


async def tasks(session: Session) -> tuple[str, ...]:
    """See `Bmc.update_tasks`."""
    try:
        service = await session.get(
            (await session.root()).link("TaskService") or (await session.root()).link("Tasks"), "tasks"
        )
        found, _ = await session.members(service.link("Tasks"), "tasks", TASKS_MAX)
    except (NotSupported, AnswerUnreadable):
        return ()
    return tuple(task.path for task in found)


async def follow(machine: Machine, task: str, seconds: float) -> frozenset[ResetNeed]:
    """See `Bmc.await_update`."""
    session = machine.session
    until, refusals = session.wire.clock.now() + seconds, _Refusals()
    while session.wire.clock.now() < until:
        await _pause(session, refusals)
        try:
            ended = await poll(session, task)
        except (Unreachable, Busy):
            continue  # the update may restart the BMC
        except CredentialsRefused as error:
            refusals.count(error)
            continue
        if ended is not None:
            return await _needs(machine, ended.resets) if ended.resets else frozenset()
    raise OutcomeUnknown(f"the task {task} did not end within {seconds:g} s")


async def _needs(machine: Machine, resets: tuple[str, ...]) -> frozenset[ResetNeed]:
    system = await machine.system()
    manager = await machine.manager(system)
    owners = ((system.path, ResetNeed.HOST), (manager.path, ResetNeed.BMC))
    return frozenset(
        need for uri in resets for path, need in owners if uri == path or uri.startswith(f"{path.rstrip('/')}/")
    )


async def read_versions(
    session: Session, ids: tuple[str, ...], version: str, seconds: float
) -> tuple[FirmwareItem, ...]:
    """See `Bmc.read_versions`."""
    until, refusals = session.wire.clock.now() + seconds, _Refusals()
    found: tuple[FirmwareItem, ...] = ()
    while True:
        why = ""
        try:
            found = tuple(item for item in await inventory(session) if item.id in ids)
        except CertificateChanged:
            raise
        except CredentialsRefused as error:
            refusals.count(error)
            why = error.detail
        except BmcProblem as error:
            why = error.detail
        if not why and {item.id for item in found if item.version == version} == set(ids):
            return found
        if session.wire.clock.now() >= until:
            break
        await _pause(session, refusals)
    if why:
        raise NotBack(f"after the update the versions could not be read within {seconds:g} s: {why}")
    return found


class _Refusals:
    """Refused logins since the update began."""

    def __init__(self) -> None:
        self.number = 0

    def count(self, error: CredentialsRefused) -> None:
        """Raise NotBack at the last that is allowed."""
        self.number += 1
        if self.number >= LOGINS_REFUSED_MAX:
            raise NotBack(f"after the update the BMC refuses the credentials of before: {error.detail}") from error


async def _pause(session: Session, refusals: _Refusals) -> None:
    deadlines = session.wire.deadlines
    await session.wire.clock.sleep(
        deadlines.queue_seconds if refusals.number else max(POLL_SECONDS, deadlines.poll_seconds)
    )
