"""Reports to each tenant what it has lost by a restore: events of its feed, with a bounded number of losses each."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from psycopg.types.json import Jsonb

from berth.cli.deployment.restore.gate import Connection
from berth.process.json_objects import JsonMapping, JsonObject

PAGE_LOSSES_MAX = 100
"""Of one event: at most 100 KiB, as no member is longer than what the log permits."""
PAGES_AT_ONCE = 50
SUBJECT_LENGTH_MAX = 200
_REPORT = "select restore_report_losses(%s, %s, %s, %s)"


def report_to_tenants(connection: Connection, epoch: UUID, report: Path, missing: int) -> None:
    """Leave the events, in place of those of an earlier export; they are delivered once the restore is closed.

    `report`: a file of `report.ndjson`. `missing`: versions of the lost interval that NATS keeps no more. For a transaction of
    the caller. Memory is bounded by the number of tenants.
    """
    connection.execute(_REPORT, (epoch, True, missing, Jsonb([])))
    pages: list[JsonObject] = []
    for page in _pages(report):
        pages.append(page)
        if len(pages) == PAGES_AT_ONCE:
            connection.execute(_REPORT, (epoch, False, missing, Jsonb(pages)))
            pages = []
    connection.execute(_REPORT, (epoch, False, missing, Jsonb(pages)))


def _pages(report: Path) -> Iterator[JsonObject]:
    parts: Counter[str] = Counter()
    open_pages: defaultdict[str, list[JsonObject]] = defaultdict(list)
    with report.open("rb") as lines:
        for text in lines:
            line = json.loads(text)
            tenant = line["tenant"]
            if not _is_id(tenant):
                continue
            open_pages[tenant].append(_loss(line))
            if len(open_pages[tenant]) == PAGE_LOSSES_MAX:
                parts[tenant] += 1
                yield {"tenant_id": tenant, "part": parts[tenant], "lost": open_pages.pop(tenant)}
    for tenant, losses in open_pages.items():
        yield {"tenant_id": tenant, "part": parts[tenant] + 1, "lost": losses}


def _loss(line: JsonMapping) -> JsonObject:
    """What a tenant may know of a line: of an operator's action about it neither event nor key, which are not in its feed."""
    loss = {
        "at": line["at"], "kind": line["kind"], "subject": str(line["subject"])[:SUBJECT_LENGTH_MAX],
        "replayed": line["replayed"],
    }  # fmt: skip
    if line["own"]:
        loss |= {name: line[name] for name in ("version", "event_id", "event_type", "operation_key")}
    return loss


def _is_id(tenant: str) -> bool:
    try:
        UUID(tenant)
    except ValueError:
        return False
    return True
