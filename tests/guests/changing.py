"""One active allocation, and its guest, which tests change through commands, in place of worker and node."""

from __future__ import annotations

import json
import uuid
from typing import Any

from node_agent.protocol import ResultReport, VerbResult
from orchestrator.allocations.commands.verbs import begin_verb, finish_verb, order_verb
from orchestrator.allocations.outcomes import Begun, Concluded, Superseded
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import (
    CONNECTION,
    TENANT,
    allocation_of,
    completed,
    operation,
    provision,
    report,
    task_of,
)
from tests.allocations.seeding import Seeded, create_allocation

ACTIVE = AllocationState.ACTIVE
NEW_CONNECTION = {**CONNECTION, "port": 3333}
STOPPED = VerbResult(connection=None).model_dump(mode="json")
RUNS = VerbResult.model_validate({"connection": CONNECTION}).model_dump(mode="json")
REBUILT = VerbResult.model_validate({"connection": NEW_CONNECTION}).model_dump(mode="json")
RESULTS = {Verb.REBOOT: RUNS, Verb.STOP: STOPPED, Verb.START: RUNS, Verb.REBUILD: REBUILT}


class Guest:
    """One allocation that is active, and its tenant."""

    def __init__(self, context: Context, url: str, seeded: Seeded, allocation_id: uuid.UUID) -> None:
        self.context, self.url, self.seeded, self.id = context, url, seeded, allocation_id

    async def order(self, verb: Verb, key: str | None = None) -> Answer:
        seeded = self.seeded
        return await order_verb(self.context, operation(seeded, key), TENANT, seeded.tenant_id, self.id, verb)

    async def begin(self, notify: str = "wf") -> Begun | Superseded:
        return await begin_verb(self.context, self.id, notify)

    async def finish(self) -> object:
        return await finish_verb(self.context, self.id)

    async def report(self, of: ResultReport) -> None:
        assert (await report(self.context, task_of(self.url, self.id), of)).applied

    async def perform(self, verb: Verb) -> None:
        assert (await self.order(verb)).status == 202
        assert isinstance(await self.begin(), Begun)
        await self.report(completed(task_of(self.url, self.id), RESULTS[verb]))
        assert await self.finish() == Concluded(ACTIVE)

    def body(self, answer: Answer) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(answer.body)
        return document

    @property
    def row(self) -> dict[str, Any]:
        return allocation_of(self.url, self.id)


async def active(context: Context, url: str, seeded: Seeded) -> Guest:
    guest = Guest(context, url, seeded, create_allocation(url, seeded))
    await provision(context, url, guest.id)
    return guest
