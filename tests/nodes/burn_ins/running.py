"""One round of a burn-in in place of worker and node."""

from __future__ import annotations

import json
import uuid
from typing import Any

from node_agent.protocol import FailureCode
from node_agent.wire.burn_in import BurnInPart, BurnInReport
from node_agent.wire.health import PluginResult
from orchestrator.nodes.burn_ins.queries import find_open_burn_ins
from orchestrator.nodes.commands.burn_ins import Advanced, BurnInPolicy, advance_burn_in, request_burn_in
from orchestrator.nodes.commands.quarantines import return_slot
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import ADMIN, completed, failed, report, row_of
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import connect
from tests.nodes.answers import body_of

PERSON = BurnInPolicy(3_600.0, 5, "person")
AUTOMATIC = BurnInPolicy(3_600.0, 5, "automatic")


def part(name: Any, verdict: Any = "healthy", evidence: str = "") -> BurnInPart:
    return BurnInPart(name=name, verdict=verdict, evidence=evidence, seconds=1.5)


def burned_in(*changed: BurnInPart, plugins: list[PluginResult] | None = None) -> BurnInReport:
    """A report of sound parts; those given differ."""
    parts = {one.name: one for one in (part("memory"), part("disk"), part("cpu"), *changed)}
    return BurnInReport(driver="libvirt", shared=False, parts=list(parts.values()), plugins=plugins)


FAULTY = burned_in(part("memory", "fault", "byte 7"))


def can_burn_in(url: str) -> None:
    """As heartbeats of this version's agents say."""
    with connect(url) as connection:
        connection.execute("update nodes set agent_features = '{burn_in}'")


async def ask(context: Context, node: uuid.UUID, slot: int | None = None) -> Answer:
    return await request_burn_in(context, admin_operation(), ADMIN, node, slot)


async def return_(context: Context, node: uuid.UUID, slot: int, **options: Any) -> Answer:
    return await return_slot(context, admin_operation(), ADMIN, node, slot, note="GPU replaced", **options)


def refusal_of(answer: Answer) -> tuple[int, str]:
    return answer.status, body_of(answer)["code"]


def burn_in_task(url: str) -> dict[str, Any]:
    """The only task of a burn-in."""
    return row_of(url, "select * from node_tasks where type = 'diag.burn_in'")


async def issue(context: Context, node: uuid.UUID, policy: BurnInPolicy = PERSON) -> None:
    assert await find_open_burn_ins(context, 10) == [node]
    assert await advance_burn_in(context, node, policy) is Advanced.ISSUED
    assert await find_open_burn_ins(context, 10) == []


async def answer(
    context: Context,
    url: str,
    node: uuid.UUID,
    found: BurnInReport | FailureCode | dict[str, Any],
    policy: BurnInPolicy = PERSON,
) -> Advanced:
    """The open burn-in, answered and concluded."""
    task = burn_in_task(url)
    if isinstance(found, FailureCode):
        said = failed(task, found)
    else:
        result = json.loads(found.canonical()) if isinstance(found, BurnInReport) else found
        said = completed(task, result)
    assert (await report(context, task, said)).applied
    assert await find_open_burn_ins(context, 10) == [node]
    advanced = await advance_burn_in(context, node, policy)
    assert advanced is not None
    assert await advance_burn_in(context, node, policy) is None, "it is concluded once"
    return advanced


async def burn(
    context: Context,
    url: str,
    node: uuid.UUID,
    found: BurnInReport | FailureCode | dict[str, Any] | None = None,
    slot: int | None = None,
    policy: BurnInPolicy = PERSON,
) -> Advanced:
    """A whole burn-in: requested, issued, answered, concluded."""
    asked = await ask(context, node, slot)
    assert asked.status == 200, asked.body
    await issue(context, node, policy)
    return await answer(context, url, node, burned_in() if found is None else found, policy)
