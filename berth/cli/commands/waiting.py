"""Waits for an allocation and shows its progress."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING
from uuid import UUID

from berth.cli.session import Session

if TYPE_CHECKING:
    from berth.client import Allocation, Client

RETRY_SECONDS = 30.0


def wait_with_progress(
    session: Session,
    client: Client,
    allocation_id: UUID,
    states: Collection[str],
    timeout_seconds: float,
    tenant_id: UUID | None = None,
) -> Allocation:
    """Wait, showing every state change on stderr: a spinner on a terminal, a line otherwise, nothing for JSON."""
    # A restart of the server does not end the wait.
    client.exchange.retry_seconds = RETRY_SECONDS
    last = ""

    def say(allocation: Allocation) -> str:
        waits = f", waits for {allocation.waits.for_}" if allocation.waits else ""
        return f"{allocation.allocation_id} is {allocation.status}{waits}"

    if session.json:
        return client.wait_for(allocation_id, states, timeout_seconds, tenant_id=tenant_id)
    with session.errors.status(f"waiting for {' or '.join(sorted(states))}") as status:

        def progress(allocation: Allocation) -> None:
            nonlocal last
            if allocation.status != last:
                last = allocation.status
                status.update(say(allocation))
                if not session.errors.is_terminal:
                    session.errors.print(say(allocation), markup=False)

        return client.wait_for(allocation_id, states, timeout_seconds, tenant_id=tenant_id, progress=progress)
