"""Every event that a test has written says what `orchestrator/log/event_types.py` promises of it, and nothing else."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]

from orchestrator.log.event_kinds import Visibility
from orchestrator.log.event_types import EVENT_KINDS
from orchestrator.log.events import EventType
from tests.allocations.seeding import connect

_READ = """
select event_type, tenant_id is not null, payload from outbox
union all select event_type, tenant_id is not null, payload from log
where event_type not like 'log.%' and event_type not like 'test.%'
"""


@cache
def _validator(event_type: str) -> Draft202012Validator:
    schema = {**EVENT_KINDS[EventType(event_type)].schema(), "additionalProperties": False}
    return Draft202012Validator(schema, format_checker=FormatChecker())


def unpromised(url: str) -> list[tuple[str, Any]]:
    """What is wrong with the data or the audience of every event there is."""
    with connect(url) as connection:
        rows = connection.execute(_READ).fetchall()
    found: list[tuple[str, Any]] = []
    for event_type, of_tenant, payload in rows:
        found += [(event_type, error.message) for error in _validator(event_type).iter_errors(payload)]
        kind = EVENT_KINDS[EventType(event_type)]
        if kind.visibility is Visibility.OPERATOR and of_tenant:
            found.append((event_type, "is delivered to a tenant"))
    return found
