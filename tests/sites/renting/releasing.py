"""Releases of a rented machine, up to the rotation of its BMC's password."""

from __future__ import annotations

from typing import Any

from orchestrator.allocations.states import AllocationState
from orchestrator.nodes.deploy_systems.run_rules import Move
from tests.sites.renting.tenancy import Renting

CHANGE = "PATCH .*/Accounts/1$"


async def to_rotation(rent: Renting) -> None:
    """An active allocation is released, and its wipe proven; the rotation is requested."""
    rent.run.machine.service.machine.refused_logins = 0  # since the last tenancy the BMC has forgotten them
    await rent.activate()
    await rent.release()
    await rent.clean_up()
    assert await rent.steps() is Move.WORK
    await rent.wipe()
    while not await rent.is_at("rotate"):
        if await rent.run.advance() is None:
            await rent.run.perform()


async def require_released(rent: Renting) -> None:
    """The run has ended with the machine off, the units are free, and the BMC's password is known."""
    assert rent.run.is_undone()
    assert (await rent.cleaned_up()).state is AllocationState.RELEASED
    assert rent.claim["closed_at"] is not None
    rent.run.machine.require_known()


def quarantines(rent: Renting) -> list[Any]:
    """Slot, source, reason and evidence of each open quarantine of the node."""
    return list(
        rent.run.stage.fleet.connection.execute(
            "select slot_index, source, reason, evidence from slot_quarantines where node_id = %s and returned_at is null"
            " order by slot_index",
            (rent.run.node,),
        ).fetchall()
    )


def slots_of(rent: Renting) -> int:
    """How many slots the node has."""
    return int(rent.run.row("select count(*) from slots where node_id = %s", rent.run.node)[0])
