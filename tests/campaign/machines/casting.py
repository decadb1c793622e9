"""The actors of a rack."""

from __future__ import annotations

from collections.abc import Sequence

from berth.client import AsyncClient
from tests.campaign.clients.load import Renter
from tests.campaign.history import History
from tests.campaign.machines.operating import RackOperator
from tests.campaign.machines.stage import RackedStage
from tests.campaign.machines.tenants import MachineTenant
from tests.campaign.stage import Stage

NUMBER_FIRST = 500
"""Of clients, which no other client has: their keys begin with it."""


def at_rack(
    stage: Stage, renters: Sequence[Renter], admins: Sequence[AsyncClient], history: History
) -> list[MachineTenant | RackOperator]:
    """A tenant's client for each machine, of two tenants in turn, and the operator; none without a rack."""
    if not isinstance(stage, RackedStage):
        return []
    tenants = [
        MachineTenant(NUMBER_FIRST + n, renters[n % 2], history) for n in range(len(stage.places))
    ]  # fmt: skip
    return [*tenants, RackOperator(admins, stage.places, history)]
