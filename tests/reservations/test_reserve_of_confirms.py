"""Confirms that are combined: while the reserve is needed it serves those of owners alone (P13)."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

import pytest

from orchestrator.database import reserve
from orchestrator.database.calls import CallGroup
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Operation
from orchestrator.problems import Overloaded, Problem
from orchestrator.reservations.commands.confirm import confirm_reservation
from orchestrator.reservations.store.confirming import Confirm
from tests.allocations.seeding import make_context


def confirm_by(claimant: reserve.FindClaimant) -> Confirm:
    """A confirm of a reservation that there is not, whose caller has this claim."""
    tenant = uuid.uuid4()
    operation = Operation(tenant, str(uuid.uuid4()), b"0" * 32, 60.0, ending=True)
    return Confirm(operation, tenant, uuid.uuid4(), "holder", claimant=claimant)


async def stranger() -> None:
    """No claim."""
    return


def test_a_forged_confirm_takes_no_connection_of_the_reserve(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before it waits for one; that of an owner waits, and is refused when none is free in time."""
    monkeypatch.setattr(reserve, "POOL_TIMEOUT_SECONDS", 0.05)

    async def story() -> list[object]:
        context: Context = make_context(database_url, pool_size=1, reserve_size=1)
        database = context.database.for_request(ending_verb="confirm")
        ending = replace(context, database=database)
        group = CallGroup.RESERVATIONS
        async with database.function_call(group), database.function_call(group):
            forged = await confirm_reservation(ending, [confirm_by(stranger), confirm_by(stranger)])
            with pytest.raises(Overloaded) as waited:
                await confirm_reservation(ending, [confirm_by(stranger), confirm_by(reserve.platform)])
        mixed = await confirm_reservation(ending, [confirm_by(stranger)])
        await database.close()
        return [*(one.detail for one in forged if isinstance(one, Problem)), waited.value.detail, len(mixed)]

    assert asyncio.run(story()) == [reserve.NOT_OWNED, reserve.NOT_OWNED, reserve.TOO_MANY, 1]


def test_confirms_of_one_principal_take_its_share_together(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside one that a principal holds already its batch waits, and that of another principal does not."""
    monkeypatch.setattr(reserve, "POOL_TIMEOUT_SECONDS", 0.2)

    def claiming(principal: int) -> reserve.FindClaimant:
        async def claimant() -> reserve.Claimant:
            return reserve.Claimant(uuid.UUID(int=principal))

        return claimant

    async def story() -> int:
        context: Context = make_context(database_url, pool_size=1, reserve_size=4)
        database = context.database.for_request(ending_verb="confirm")
        ending = replace(context, database=database)
        group = CallGroup.RESERVATIONS
        async with database.function_call(group), database.function_call(group):
            held = database.for_claimant(claiming(1))
            async with held.function_call(group):
                with pytest.raises(Overloaded, match="exhausted"):
                    await confirm_reservation(ending, [confirm_by(claiming(1)), confirm_by(claiming(1))])
                others = await confirm_reservation(ending, [confirm_by(claiming(2)), confirm_by(claiming(2))])
        await database.close()
        return len(others)

    assert asyncio.run(story()) == 2
