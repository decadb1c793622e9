"""When a rescue is ordered, and that whatever is ordered after it ends the system that may run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from orchestrator.allocations.commands.verbs import order_verb
from orchestrator.allocations.states import Verb
from orchestrator.nodes.deploy_systems.run_rules import HISTORY_MAX, Move
from orchestrator.settings import Settings
from tests.allocations.driving import TENANT, operation
from tests.sites.renting.tenancy import Renting, Scene


def test_no_rescue_is_ordered_before_an_operator_allows_them(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        before, context = rent.row, rent.run.stage.context
        allowed = Settings(database_url="postgresql:///x").limits().rescues_allowed
        closed = replace(context, limits=replace(context.limits, rescues_allowed=allowed))
        answer = await order_verb(
            closed, operation(rent.seeded), TENANT, rent.seeded.tenant_id, rent.allocation, Verb.RESCUE
        )
        assert (answer.status, json.loads(answer.body)["state"]) == (409, "no_rescue_system")
        assert rent.row == before

    play(scene)


def test_however_many_verbs_fail_a_rescue_system_that_may_run_is_ended_first(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.rescue()
        rent.run.stage.fleet.connection.execute(
            "insert into deploy_runs select (jsonb_populate_record(r, jsonb_build_object('id', uuidv7(), 'kind', 'reboot',"
            " 'outcome', 'failed', 'failure', 'not_ended: the BMC is silent', 'deploy_epoch', null, 'deploy_task_id', null,"
            " 'task_id', null, 'allocation_id', null, 'claim_id', null, 'report', null))).*"
            " from deploy_runs r, generate_series(1, %s) where r.kind = 'rescue'",
            (HISTORY_MAX,),
        )
        rent.run.stage.fleet.connection.execute(
            "update deploy_runs set outcome = 'failed', failure = 'not_ended: x' where kind = 'rescue'"
        )
        await rent.order(Verb.REBOOT)
        assert await rent.run.advance() is Move.OPEN
        assert rent.run.row("select count(*) from deploy_runs where kind = 'rescue'")[0] == 1
        assert (await rent.run.shown())["step"] == "end"

    play(scene)
