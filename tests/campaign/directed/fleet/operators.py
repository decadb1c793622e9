"""What scenes of operators share: their writes as they note them, and what is read in the end."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from orchestrator.operations.store.operations import Answer, Operation
from tests.allocations.seeding import Seeded
from tests.campaign.directed.scene import Scene
from tests.campaign.fleet_history import Audited, FleetKind

SCOPE = UUID(int=7)


def written(key: str, content: bytes = b"") -> Operation:
    """An operator's write under a key."""
    return Operation(SCOPE, key, content.ljust(32, b"\0"), 3600.0)


def begin(scene: Scene, **fleet: Any) -> Seeded:
    """A fleet, and its units in the history."""
    seeded = scene.seed(**fleet)
    scene.history.fleet.first_units = {node.id: node.unit_base for node in seeded.nodes}
    return seeded


def note(scene: Scene, kind: FleetKind, key: str, subject: str, answer: Answer, **said: Any) -> bool:
    """Note an operator's response; whether the write was done."""
    scene.told(kind, key, json.dumps({"subject": subject, **said}, default=str), answer)
    return answer.status < 400


def read_end(scene: Scene) -> None:
    """Note the states of the nodes, as they are in the end."""
    with psycopg.connect(scene.url) as connection:
        for node_id, state in connection.execute("select id, state from nodes"):
            scene.history.fleet.states[node_id] = state


def read_audit(scene: Scene, action: str) -> None:
    """Note what the audit has of an action."""
    with psycopg.connect(scene.url, row_factory=dict_row) as connection:
        rows = connection.execute(
            "select operation_key, action, subject, code, detail from audit_pending where action = %s order by id",
            (action,),
        )
        scene.history.fleet.audited += [
            Audited(row["operation_key"], row["action"], row["subject"], row["code"], row["detail"]) for row in rows
        ]
