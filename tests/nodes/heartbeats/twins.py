"""Two nodes in the same state, one heard together with other nodes, the other in a separate transaction."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from node_agent.protocol import Heartbeat
from orchestrator.nodes.commands.heartbeat import record_heartbeat, record_unchanged
from orchestrator.nodes.queries import find_standing
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.tasks.store.heartbeats import NodeReport
from tests.allocations.driving import provision
from tests.allocations.seeding import Seeded, add_node, create_allocation

TOGETHER, ALONE = 0, 1
DIFFERENT = {"id", "name", "unit_base", "placement_rank", "created_at"}
"""Columns in which twins differ."""
_CERTIFICATE = """
insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)
values (%s, %s, 1, sha256(%s), clock_timestamp() - interval '1 minute', clock_timestamp() + interval '1 day')
"""
_EVENTS = "select event_type from outbox where subject = any (%s) order by id"
_HEALTH = "select health, health_cause, first_boot, row_version from allocations where id = %s"


@dataclass
class Twins:
    """Nodes of one pool whose driver is not known yet, each with a certificate and an active allocation."""

    connection: psycopg.Connection[Any]
    context: Context
    nodes: list[uuid.UUID] = field(default_factory=list)
    allocations: list[uuid.UUID] = field(default_factory=list)
    serials: list[str] = field(default_factory=list)
    heard_together: int = 0

    async def make(self, url: str, seeded: Seeded, count: int = 2) -> None:
        """Make them, and so many in all."""
        for _ in range(count):
            self.connection.execute("update nodes set state = 'cordoned' where state = 'active'")
            node = add_node(self.connection, seeded.pools["gpu_slice"], f"twin-{uuid.uuid4()}", "gpu_slice").id
            serial = uuid.uuid4().hex
            self.connection.execute(_CERTIFICATE, (serial, node, serial.encode()))
            allocation = create_allocation(url, seeded, gpus=1)
            self.nodes.append(node)
            self.serials.append(serial)
            self.allocations.append(allocation)
            await provision(self.context, url, allocation)
        self.connection.execute("update pools set driver = null")
        self.change("update nodes set state = 'active' where id = {node}")

    async def hear(self, which: int, heartbeat: Heartbeat) -> str:
        """What the node's API does with a heartbeat of this twin: the state and networks in its answer, or its refusal."""
        node, serial = self.nodes[which], self.serials[which]
        try:
            if which == TOGETHER:
                (answer,) = await self.hear_together(heartbeat, [which])
                if answer is not None:
                    self.heard_together += 1
                    return answer
            await find_standing(self.context.database, node, serial)
            alone = await record_heartbeat(self.context, node, heartbeat, sandbox_allowed=True)
        except Problem as refusal:
            return refusal.code
        return f"{alone.node_state} {alone.span}"

    async def hear_together(self, heartbeat: Heartbeat, which: list[int]) -> list[str | None]:
        """The answers to a heartbeat of each of these; None: it was not recorded."""
        reports = [NodeReport(self.nodes[one], self.serials[one], heartbeat) for one in which]
        answers = await record_unchanged(self.context, reports, sandbox_allowed=True)
        return [None if answer is None else f"{answer.node_state} {answer.span}" for answer in answers]

    def change(self, statement: str) -> None:
        """The same change of each: `{node}` and `{allocation}` are its ids."""
        for node, allocation in zip(self.nodes, self.allocations, strict=True):
            self.connection.execute(statement.format(node=f"'{node}'", allocation=f"'{allocation}'").encode())

    def now(self, later: timedelta = timedelta(0)) -> datetime:
        """The database's clock."""
        row = self.connection.execute("select clock_timestamp() + %s", (later,)).fetchone()
        assert row is not None
        found: datetime = row[0]
        return found

    def state_of(self, which: int) -> str:
        """Everything that a heartbeat may change, without ids and moments."""
        node, allocation = self.nodes[which], self.allocations[which]
        with self.connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute("select * from nodes where id = %s", (node,)).fetchone()
            assert row is not None
            health = cursor.execute(_HEALTH, (allocation,)).fetchone()
            pool = cursor.execute("select driver from pools where id = %s", (row["pool_id"],)).fetchone()
        events = self.connection.execute(_EVENTS, ([f"nodes/{node}", f"allocations/{allocation}"],)).fetchall()
        own = {
            name: "a time" if isinstance(value, datetime) and name != "inventory_after" else value
            for name, value in row.items()
            if name not in DIFFERENT
        }
        text = repr([own, health, pool, events])
        return text.replace(str(node), "NODE").replace(str(allocation), "ALLOCATION")
