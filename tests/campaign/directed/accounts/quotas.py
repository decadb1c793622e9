"""Scenes with quotas and rates. Each is the shortest way to where one bug shows."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from orchestrator.http.principal_limits import ON_RESPONSE, PrincipalLimits
from orchestrator.http.rate_limits import RateLimits, RequestClass
from orchestrator.http.services import ENDING_VERB
from orchestrator.operations.execution import Context
from orchestrator.problems import RateLimited
from tests.allocations.driving import release, rows_of
from tests.allocations.seeding import Seeded, connect, try_create
from tests.campaign.accounts import QuotaLimit, RateLimit
from tests.campaign.directed.scene import Scene
from tests.campaign.history import Attempt, Outcome, WriteKind

GPUS_MAX = 2
BURST, RATE = 4, 1.0
SLOW, QUICK = "slow", "quick"


def a_create_after_a_release(scene: Scene) -> None:
    """Of two allocations at the quota one is released, and two more are created."""
    seeded = scene.seed(gpus_limit=GPUS_MAX)
    first, second = _create(scene, seeded), _create(scene, seeded)
    assert first is not None, "there is room for it"
    assert second is not None, "there is room for it"
    _end(scene, seeded, first)
    third, fourth = _create(scene, seeded), _create(scene, seeded)
    for allocation_id in (second, third, fourth):
        if allocation_id is not None:
            _end(scene, seeded, allocation_id)
    _read(scene, seeded)


def _create(scene: Scene, seeded: Seeded) -> uuid.UUID | None:
    key = uuid.uuid4().hex
    with connect(scene.url) as connection:
        made = try_create(connection, seeded, key=key)
    scene.write("create", key, key, Outcome.DONE if made else Outcome.REFUSED, "answer", made)
    return made


def _end(scene: Scene, seeded: Seeded, allocation_id: uuid.UUID) -> None:
    async def play(context: Context) -> None:
        await scene.provision(context, allocation_id)
        await release(context, seeded, allocation_id)
        await scene.clean_up(context, allocation_id)

    scene.run(play)


def _read(scene: Scene, seeded: Seeded) -> None:
    ((used,),) = rows_of(scene.url, "select gpus_used from tenant_quotas where tenant_id = %s", seeded.tenant_id)
    scene.history.accounts.quotas.append(QuotaLimit(seeded.tenant_id, "gpus", GPUS_MAX))
    scene.history.accounts.used[seeded.tenant_id] = {"gpus": used}


def a_tenant_beyond_its_rate(scene: Scene) -> None:
    """One tenant sends more creates than its rate allows, and releases; another sends one create."""
    scene.seed()
    slow, quick = uuid.uuid4(), uuid.uuid4()
    rates = dict.fromkeys(RequestClass, 1_000.0)
    limits = PrincipalLimits(100, 100, RateLimits(rates, {slow: dict.fromkeys(RequestClass, RATE)}))
    scene.history.accounts.rate = RateLimit(frozenset({SLOW}), RATE, BURST, 1)

    async def play() -> None:
        for number in range(3 * BURST):
            await _send(scene, limits, slow, SLOW, "update", number)
        for number in range(3 * BURST):
            await _send(scene, limits, slow, SLOW, "release", number)
        await _send(scene, limits, quick, QUICK, "update", 0)

    asyncio.run(play())


async def _send(
    scene: Scene, limits: PrincipalLimits, principal: uuid.UUID, client: str, kind: WriteKind, number: int
) -> None:
    """One request, which ends at once; only whether it is let in matters."""
    state: dict[str, Any] = {ON_RESPONSE: []}
    if kind == "release":
        state[ENDING_VERB] = "release"
    scope = {"method": "POST", "path": f"/api/v1/allocations/{number}/{kind}", "headers": [], "state": state}
    began = asyncio.get_running_loop().time()
    outcome, code = Outcome.REFUSED, "invalid_state"
    try:
        await limits.admit(scope, principal)
    except RateLimited as error:
        outcome, code = Outcome.NOT_DONE, error.code
    for leave in state[ON_RESPONSE]:
        leave()
    key = f"{client}.{kind}.{number}"
    scene.history.attempts.append(Attempt(key, kind, client, key, began, began, outcome, code))
