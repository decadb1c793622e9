"""Nodes without an agent after a restore: each waits until an operator says what becomes of its machine's content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS
from berth.cli.endings import Refused
from berth.process.json_objects import JsonObject

_NAMED_MAX = 10
_WAITING = """
select n.name from awaited_inventories w join nodes n on n.id = w.node_id
where n.driver = 'redfish' and n.enrolled_at is null and n.state <> 'retired' order by n.name
"""
_OF_NODE = """
select n.id as node_id, r.export_sha256, (select a.id from allocations a
                                          join claims c on c.id = a.claim_id and c.closed_at is null
                                          where a.node_id = n.id and a.state = 'active' order by a.id limit 1) as allocation_id
from nodes n join awaited_inventories w on w.node_id = n.id join restores r on r.epoch = w.epoch
where n.name = %(node)s or n.id::text = %(node)s
"""
_REFUSED = {
    "not_awaited": "it is not awaited after a restore",
    "has_agent": "its agent says what runs on it",
    "silent": "its BMC has not answered since the restore was closed",
    "other": "not exactly one active allocation is on it, or it was released in the lost interval",
}


@dataclass(frozen=True)
class _OfNode:
    node_id: UUID
    export_sha256: bytes | None
    allocation_id: UUID | None


def machine_finding(database_url: str) -> Finding:
    """Needs the schema. Names at most ten nodes without an agent that wait for an operator since a restore, by name."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        found = [str(name) for (name,) in connection.execute(_WAITING).fetchall()]
    if not found:
        return Finding("restored machines", "ok", "none waits for an operator since a restore")
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return Finding(
        "restored machines",
        "warning",
        f"what is on {', '.join(found[:_NAMED_MAX])}{more} is unknown since a restore, and nothing is done to them by itself;"
        " look with `berth restore nodes`, then wipe or keep each",
    )


def keep_machine(connection: psycopg.Connection[tuple[object, ...]], node: str, export: Path) -> UUID:
    """The node's active allocation is still on its machine; return its id. Raises `Refused`, and changes nothing then.

    `export`: the directory of the lost interval's export, in which nothing may have been done with the machine.
    """
    found = connection.cursor(row_factory=class_row(_OfNode)).execute(_OF_NODE, {"node": node}).fetchone()
    if found is None:
        raise _refused(node, _REFUSED["not_awaited"])
    if found.allocation_id is None:
        raise _refused(node, _REFUSED["other"])
    _require_untouched(node, found, export)
    row = connection.execute("select restore_keep_node(%s, %s)", (found.node_id, found.allocation_id)).fetchone()
    assert row is not None, "the function returns one row"
    if row[0] != "kept":
        raise _refused(node, _REFUSED[str(row[0])])
    return found.allocation_id


def _require_untouched(node: str, found: _OfNode, export: Path) -> None:
    if found.export_sha256 is None:
        raise _refused(node, "the lost interval was not exported, so it may have given the machine to another tenant")
    try:
        manifest = json.loads((export / "manifest.json").read_bytes())
        content = (export / "events.ndjson").read_bytes()
    except OSError as error:
        raise _refused(node, f"the export of the lost interval cannot be read: {error}") from error
    if hashlib.sha256(content).digest() != found.export_sha256:
        raise _refused(node, f"{export} is not the export of this restore")
    if manifest["missing"]:
        raise _refused(node, f"{manifest['missing']} versions of the lost interval are in no export")
    for line in content.splitlines():
        event = json.loads(line)
        if _touches(event, found):
            raise _refused(node, f"{event['type']} of {event['subject']} in the lost interval is about its machine")


def _touches(event: JsonObject, found: _OfNode) -> bool:
    """Whether the event says that something else was on the machine, or may say so."""
    kind, data = str(event["type"]).removeprefix("berth."), event.get("data") or {}
    if kind == "provisioning.requested":
        return data.get("node_id") in (None, str(found.node_id)) and data.get("allocation_id") != str(
            found.allocation_id
        )
    return kind == "node.deploy_run_ended" and data.get("node_id") in (None, str(found.node_id))


def _refused(node: str, why: str) -> Refused:
    return Refused(f"{node} is not kept: {why}", code="not_kept")
