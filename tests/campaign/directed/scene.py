"""A scene on one database: commands are called as processes call them, and what clients and nodes saw is noted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from node_agent.journal_records import Accepted, Finished, Started
from node_agent.protocol import Envelope, ResultReport
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.operations.execution import Context, Limits
from orchestrator.operations.store.operations import Answer
from orchestrator.verification.all_checks import run_checks
from tests.allocations.driving import PROVISIONED, WIPED, completed, report, run_with, task_of
from tests.allocations.seeding import Seeded, connect, seed
from tests.campaign.history import Attempt, Delivery, History, Outcome, Sight, WriteKind
from tests.campaign.judging.judging import judge_history
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_nodes import NodeStory, NodeWatch

T = TypeVar("T")

_SEE = """
select a.id, a.state, a.row_version, n.name as node, a.waits_until, a.failed_at, a.failure_code, a.correlation_id,
       array(select unit - n.unit_base from unnest(c.units) part, generate_series(lower(part), upper(part) - 1) unit
             order by unit) as slots
from allocations a join nodes n on n.id = a.node_id join claims c on c.id = a.claim_id
"""


@dataclass
class Scene:
    """One node of eight slots unless the scene seeds otherwise."""

    url: str
    history: History = field(default_factory=lambda: History(seed=0))
    story: NodeStory = field(default_factory=NodeStory)
    """What the node that the scene plays would have in its journal."""

    def seed(self, **fleet: Any) -> Seeded:
        """A tenant and nodes."""
        return seed(self.url, **fleet)

    def run(self, work: Callable[[Context], Awaitable[T]], limits: Limits | None = None) -> T:
        """Run commands with a new context."""
        return run_with(self.url, work, limits=limits)

    def write(
        self, kind: WriteKind, key: str, content: str, outcome: Outcome, answer: str = "",
        allocation_id: uuid.UUID | None = None, reservation_id: uuid.UUID | None = None,
    ) -> None:  # fmt: skip
        """Record a request and its response, with the time."""
        now = time.monotonic()
        self.history.attempts.append(
            Attempt(key, kind, "scene", content, now, now, outcome, "ok", answer, allocation_id, reservation_id)
        )

    def told(
        self, kind: WriteKind, key: str, content: str, answer: Answer, allocation_id: uuid.UUID | None = None,
        reservation_id: uuid.UUID | None = None,
    ) -> None:  # fmt: skip
        """Note the answer of a command."""
        outcome = Outcome.DONE if answer.status < 400 else Outcome.REFUSED
        self.write(kind, key, content, outcome, answer.body, allocation_id, reservation_id)

    def look(self, allocation_id: uuid.UUID) -> Sight:
        """Note what a client would read now."""
        asked = time.monotonic()
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            row = connection.execute(f"{_SEE} where a.id = %s", (allocation_id,)).fetchone()
        assert row is not None, "the allocation of a scene exists"
        sight = _sight(row, asked)
        self.history.sights.append(sight)
        return sight

    async def node_reports(self, context: Context, allocation_id: uuid.UUID, of: ResultReport | None = None) -> None:
        """The allocation's newest task is carried out by its node, or ends as `of` says."""
        task = task_of(self.url, allocation_id)
        of = of or completed(task, PROVISIONED)
        self.journal(task, of)
        await report(context, task, of)

    def journal(self, task: dict[str, Any], of: ResultReport) -> None:
        """The node's own record of a task."""
        envelope = Envelope.model_validate(task["envelope"])
        self.story.read(
            [Accepted(envelope=envelope), Started(task_id=task["id"]), Finished(task_id=task["id"], report=of)]
        )

    async def provision(self, context: Context, allocation_id: uuid.UUID) -> None:
        """requested -> active, and a client sees it."""
        await begin_provisioning(context, allocation_id, f"provisioning-{allocation_id}")
        await self.node_reports(context, allocation_id)
        await finish_provisioning(context, allocation_id)
        self.look(allocation_id)

    async def clean_up(self, context: Context, allocation_id: uuid.UUID) -> None:
        """releasing -> released."""
        await begin_release(context, allocation_id, f"releasing-{allocation_id}")
        await self.node_reports(context, allocation_id, completed(task_of(self.url, allocation_id), WIPED))
        await finish_release(context, allocation_id, f"releasing-{allocation_id}")

    def sequence(self) -> None:
        """Give every event its version and deliver it, as relay and NATS would."""
        with connect(self.url) as connection:
            connection.execute("select log_advance(1000)")

    def judge(self) -> list[Violation]:
        """Every check that needs no process."""
        self.sequence()
        self.history.deliveries += deliveries_of_log(self.url)
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            for row in connection.execute(_SEE):
                self.history.settled[row["id"]] = _sight(row, time.monotonic())
        watch = NodeWatch({})
        watch.stories["played"] = self.story
        verdicts = run_checks(self.url)
        verified = [Violation(f"verify {v.promise}", sentence) for v in verdicts for sentence in v.violations]
        return [*judge_history(self.history), *watch.judge(self.history), *verified]


def deliveries_of_log(url: str) -> list[Delivery]:
    """The log as a perfect relay would have delivered it."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        rows = connection.execute("select * from log order by version").fetchall()
    return [
        Delivery(
            row["version"], row["version"], str(row["event_id"]), row["event_type"], row["operation_key"], row["payload"],
            row["occurred_at"], row["tenant_id"] and str(row["tenant_id"]), row["prev_version"], time.monotonic(),
        )
        for row in rows
    ]  # fmt: skip


def _sight(row: dict[str, Any], asked: float) -> Sight:
    on_its_way = row["state"] in ("requested", "provisioning")
    return Sight(
        "scene", row["id"], asked, time.monotonic(), row["state"], row["row_version"], row["node"], tuple(row["slots"]),
        str(row["correlation_id"]), row["waits_until"] if on_its_way else None, row["failed_at"], row["failure_code"],
    )  # fmt: skip
