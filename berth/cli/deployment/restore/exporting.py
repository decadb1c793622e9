"""`berth restore export`: what the restored database has lost, in files, and what is to be done about each of it.

`events.ndjson` holds the events as they were published, one a line; `report.ndjson` what was acknowledged and is lost, with
the next step; `manifest.json`, written last, counts and digests. Each tenant gets its own lines as events. A repetition makes the
same files and events anew; memory is bounded by the number of tenants and event types.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import psycopg

from berth.cli.deployment.restore import gate
from berth.cli.deployment.restore.gate import Connection, Restore
from berth.cli.deployment.restore.lost_events import Interval, Lost, find_interval, read_lost
from berth.cli.deployment.restore.lost_kinds import NEXT_STEPS, OPERATOR, REPLAYED, End, end_of, kind_of
from berth.cli.deployment.restore.lost_rows import kept_events, note_ends, note_export
from berth.cli.deployment.restore.tenant_reports import report_to_tenants
from berth.cli.endings import Refused
from berth.process.durable_directories import sync_directory
from berth.process.json_objects import JsonObject

EVENTS, REPORT, MANIFEST = "events.ndjson", "report.ndjson", "manifest.json"


@dataclass
class Summary:
    """What was exported, in numbers. `kept`: published after the moment and committed before it, so not lost."""

    events: int = 0
    kept: int = 0
    replayed: int = 0
    stubs: int = 0
    event_types: Counter[str] = field(default_factory=Counter)
    tenants: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    kinds: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    next_steps: dict[str, str] = field(default_factory=dict)


class _File:
    """A file that appears whole, with its digest."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path, self._partial = directory / name, directory / f".{name}.partial"
        self._file: BinaryIO = os.fdopen(os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        self._digest, self.bytes = hashlib.sha256(), 0

    def write(self, line: bytes) -> None:
        """Append a line."""
        self._digest.update(line)
        self._file.write(line)
        self.bytes += len(line)

    def finish(self) -> bytes:
        """Make it appear under its name, on the disk; return its SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self.path)
        sync_directory(self.path.parent)
        return self._digest.digest()


async def export_lost(database_url: str, nats_url: str, directory: Path) -> JsonObject:
    """Export the lost interval of the open restore and note it there; return the manifest. Raises `Refused`."""
    with psycopg.connect(database_url, autocommit=True, application_name="berth restore") as connection:
        restore = gate.read_restore(connection)
        if restore is None or restore.closed_at is not None:
            raise Refused("no restore is open; begin one with `berth restore begin`", code="restore_not_open")
        interval = await find_interval(database_url, nats_url)
        if not len(interval) and restore.export_events:
            raise Refused(
                f"NATS has nothing of the lost interval any more; the export of {restore.export_events} events stays",
                code="stream_rebuilt",
            )
        return await _write(connection, restore, interval, nats_url, directory)


async def _write(
    connection: Connection, restore: Restore, interval: Interval, nats_url: str, directory: Path
) -> JsonObject:
    _make(directory)
    events, report, summary = _File(directory, EVENTS), _File(directory, REPORT), Summary()
    async for batch in read_lost(nats_url, interval):
        kept = kept_events(connection, batch, interval.first)
        replayed = note_ends(connection, restore.epoch, [event for event in batch if event.event_id not in kept])
        for event in batch:
            events.write(event.document + b"\n")
            line = _note(summary, event, event.event_id in kept, replayed)
            if line is not None:
                report.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    sha256, report_sha256 = events.finish(), report.finish()
    manifest = _manifest(restore, interval, summary) | {
        "bytes": events.bytes,
        "sha256": sha256.hex(),
        "report_sha256": report_sha256.hex(),
    }
    written = _File(directory, MANIFEST)
    written.write(json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n")
    written.finish()
    with connection.transaction():
        report_to_tenants(connection, restore.epoch, directory / REPORT, manifest["missing"])
        note_export(connection, restore.epoch, summary.events, sha256)
    return manifest


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _note(summary: Summary, event: Lost, is_kept: bool, replayed: set[End]) -> JsonObject | None:
    """Count the event; return its line of the report, None if nothing follows from its loss."""
    tenant = event.tenant_id or _tenant_named(event) or OPERATOR
    summary.events += 1
    summary.event_types[event.event_type] += 1
    summary.tenants[tenant][event.event_type] += 1
    summary.stubs += event.data.get("stub") is True
    if is_kept:
        summary.kept += 1
        return None
    kind, next_step = kind_of(event.event_type, event.data), None
    end = end_of(event.event_type, event.subject, event.data, event.event_id)
    is_replayed = end is not None and end in replayed
    next_step = NEXT_STEPS.get(end.kind, REPLAYED) if end is not None and is_replayed else kind.next_step
    if next_step is None:
        return None
    summary.replayed += is_replayed
    name = f"{kind.name} (replayed)" if is_replayed else kind.name
    summary.kinds[tenant][name] += 1
    summary.next_steps[name] = next_step
    return {
        "version": event.version, "event_id": event.event_id, "at": event.occurred_at, "tenant": tenant, "kind": kind.name,
        "event_type": event.event_type, "subject": event.data.get("object", event.subject), "replayed": is_replayed,
        "own": event.tenant_id is not None, "operation_key": event.operation_key, "next_step": next_step,
    }  # fmt: skip


def _tenant_named(event: Lost) -> str | None:
    """The tenant that an operator's action was about."""
    kind, _, name = str(event.data.get("object", "")).partition("/")
    return name if kind == "tenants" and name else None


def _manifest(restore: Restore, interval: Interval, summary: Summary) -> JsonObject:
    return {
        "epoch": str(restore.epoch),
        "exported_at": datetime.now(UTC).isoformat(),
        "restored_to_version": restore.head_version,
        "restored_to": None if restore.last_event_at is None else restore.last_event_at.isoformat(),
        "first_version": interval.first,
        "last_version": interval.last,
        "events": summary.events,
        "missing": len(interval) - summary.events,
        "kept": summary.kept,
        "stubs": summary.stubs,
        "replayed": summary.replayed,
        "event_types": dict(summary.event_types),
        "tenants": {
            tenant: {"event_types": dict(types), "lost": dict(summary.kinds[tenant])}
            for tenant, types in summary.tenants.items()
        },
        "next_steps": summary.next_steps,
    }
