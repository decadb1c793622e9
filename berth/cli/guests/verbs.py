"""`berth alloc reboot`, `stop`, `start`, `rebuild`, `rescue`: verbs of the guest of an active allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from berth.cli.commands import allocations
from berth.cli.commands.waiting import wait_with_progress
from berth.cli.endings import USAGE, Refused
from berth.cli.printing import show_one
from berth.cli.session import Session, TenantOption

if TYPE_CHECKING:
    from berth.client import Allocation


def _change_guest(
    session: Session,
    allocation_id: UUID,
    verb: Literal["reboot", "stop", "start", "rebuild", "rescue"],
    wait: bool,
    timeout: float,
    tenant: str | None,
) -> None:
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        verbs = {
            "reboot": client.reboot_allocation, "stop": client.stop_allocation, "start": client.start_allocation,
            "rebuild": client.rebuild_allocation, "rescue": client.rescue_allocation,
        }  # fmt: skip
        changed: Allocation = verbs[verb](allocation_id, tenant_id=owner)
        if wait:
            changed = wait_with_progress(session, client, allocation_id, {"active"}, timeout, owner)
        show_one(session, changed, allocations.ROWS)
        if changed.guest is not None and changed.guest.failure is not None:
            failure = changed.guest.failure
            raise Refused(f"{verb} failed: {failure.code}: {failure.detail}; {failure.next_step}", code=failure.code)


VerbWait = Annotated[bool, typer.Option("--wait", help="wait until the verb has ended")]


def reboot(
    session: Session, allocation_id: allocations.AllocationId, wait: VerbWait = False, timeout: allocations.TimeoutOption = 300.0,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Stop and start the guest of an active allocation; its disk stays."""
    _change_guest(session, allocation_id, "reboot", wait, timeout, tenant)


def stop(
    session: Session, allocation_id: allocations.AllocationId, wait: VerbWait = False, timeout: allocations.TimeoutOption = 300.0,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Stop the guest of an active allocation. It keeps its GPUs, so metering goes on; release it to end that."""
    _change_guest(session, allocation_id, "stop", wait, timeout, tenant)


def start(
    session: Session, allocation_id: allocations.AllocationId, wait: VerbWait = False, timeout: allocations.TimeoutOption = 300.0,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Start the stopped guest of an active allocation, with its disk and host key."""
    _change_guest(session, allocation_id, "start", wait, timeout, tenant)


def rebuild(
    session: Session, allocation_id: allocations.AllocationId,
    discard_disk: Annotated[
        bool, typer.Option("--discard-disk", help="state that everything on the guest's disk may be lost")
    ] = False,
    wait: VerbWait = False, timeout: allocations.TimeoutOption = 300.0, tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Make the guest of an active allocation anew on the same GPUs; everything on its disk is lost."""
    if not discard_disk:
        raise Refused(
            "add --discard-disk: a rebuild loses everything on the guest's disk; copy what you need first",
            code="usage",
            exit_code=USAGE,
        )
    _change_guest(session, allocation_id, "rebuild", wait, timeout, tenant)


def rescue(
    session: Session, allocation_id: allocations.AllocationId, wait: VerbWait = False, timeout: allocations.TimeoutOption = 300.0,
    tenant: TenantOption = None,
) -> None:  # fmt: skip
    """Start the rescue system on a bare-metal machine; its disks are not opened. `start` and `reboot` leave it."""
    _change_guest(session, allocation_id, "rescue", wait, timeout, tenant)
