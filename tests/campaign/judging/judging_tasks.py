"""What must hold of the tasks that nodes refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import class_row

from tests.campaign.judging.judging_clients import Violation

_ENDED = """
select id::text as task_id, failure_code, failure_detail, finished_at, expires_at from node_tasks where state = 'failed'
"""
EXPIRED = "it expired at"
"""How an agent begins the reason (node_agent/admission.py)."""


@dataclass(frozen=True)
class EndedTask:
    """A task that failed. Both times are by the server's clock."""

    task_id: str
    failure_code: str
    failure_detail: str | None
    finished_at: datetime
    expires_at: datetime


def ended_tasks(database_url: str) -> list[EndedTask]:
    """The tasks that failed."""
    with psycopg.connect(database_url, row_factory=class_row(EndedTask)) as connection:
        return connection.execute(_ENDED).fetchall()


def check_refusals(tasks: Iterable[EndedTask]) -> Iterator[Violation]:
    """No node refused a task as expired whose time was not up when its refusal arrived."""
    for task in tasks:
        early = (task.expires_at - task.finished_at).total_seconds()
        if task.failure_code == "task_refused" and EXPIRED in (task.failure_detail or "") and early > 0:
            yield Violation(
                "late, never early", f"task {task.task_id} was refused as expired {early:.1f} s before its time"
            )
