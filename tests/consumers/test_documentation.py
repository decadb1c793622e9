"""The example of docs/how-to/consume-events.md, run unchanged: from the feed, and then from NATS."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.consumers.effects import position
from tests.support.log_sources import Telling, telling
from tests.support.waiting import async_wait_for

__all__ = ["telling"]

PAGE = Path(__file__).parents[2] / "docs/how-to/consume-events.md"
AT = "2026-03-01T09:{}:00.000000Z"


def _tell(database: psycopg.Connection[Any], kind: str, **data: object) -> None:
    database.execute(
        "insert into outbox (event_type, correlation_id, subject, payload) values (%s, uuidv7(), 'allocations/1', %s)",
        (kind, Jsonb(data)),
    )


def test_the_example_of_the_page(telling: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUMER_DATABASE_URL", telling.url)
    monkeypatch.setenv("BERTH_API_URL", telling.address)
    monkeypatch.setenv("BERTH_API_KEY", telling.admin.key or "")
    monkeypatch.setenv("BERTH_NATS_URL", telling.nats_url)
    example: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]:
        exec(block, example)  # the page's own words
    assert "BERTH_NATS_URL" in os.environ
    made = [str(uuid.uuid4()) for _ in range(2)]
    for start in ("main", "from_nats"):
        for one in made:
            kind = "provisioning.active" if start == "main" else "provisioning.releasing.requested"
            _tell(telling.database, kind, allocation_id=one, active_at=AT.format(10), releasing_at=AT.format(20))
        until = telling.head()

        async def run(begin: Any, until: int = until) -> None:
            stop = asyncio.Event()
            going = asyncio.create_task(begin(stop))

            async def over() -> bool:
                return going.done() or await asyncio.to_thread(_is_there, telling, until)

            await async_wait_for(over, "the consumer to have read everything")
            stop.set()
            await going

        asyncio.run(run(example[start]))
    rows = telling.database.execute("select allocation_id::text, until - since from active order by 1").fetchall()
    assert [(row[0], row[1].total_seconds()) for row in rows] == [(one, 600) for one in sorted(made)]


def _is_there(telling: Telling, until: int) -> bool:
    try:
        return (position(telling.database, "mirror") or 0) >= until
    except psycopg.errors.UndefinedTable:
        return False
