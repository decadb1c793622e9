"""Findings of `berth doctor` for a rotation of the keys of nodes: which key set agents use, which CA their certificates have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg.rows import class_row

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import CONNECT_SECONDS

NODES_NAMED_MAX = 10

_KEY_SETS = """
with live as (
    select n.name::text as name, n.key_set_serial as serial, n.key_set_refusal as refusal
    from nodes n
    where n.state <> 'retired' and exists (
        select from node_certificates c where c.node_id = n.id and c.node_epoch = n.epoch and c.revoked_at is null
            and c.not_after > clock_timestamp())
), newest as (
    select max(serial) as serial from live
)
select newest.serial, count(live.name) as nodes,
    coalesce(array_agg(live.name order by live.name) filter (where live.serial is distinct from newest.serial), '{}') as behind,
    coalesce(array_agg(live.name || ': ' || live.refusal order by live.name) filter (where live.refusal is not null), '{}')
        as refusing
from newest left join live on true group by newest.serial
"""
# Certificates that a node has renewed count until their own end: the response to the renewal may have been lost.
_CAS = """
select encode(substr(c.authority_key_sha256, 1, 8), 'hex') as ca, count(*) as certificates, count(distinct c.node_id) as nodes,
    max(c.not_after) as until
from node_certificates c join nodes n on n.id = c.node_id and n.epoch = c.node_epoch and n.state <> 'retired'
where c.revoked_at is null and c.not_after > clock_timestamp()
group by 1 order by until
"""


@dataclass(frozen=True)
class KeySetReadings:
    """The newest serial that a node with a live certificate uses, the nodes with another, and those that refuse one."""

    serial: int | None
    nodes: int
    behind: list[str]
    refusing: list[str]


@dataclass(frozen=True)
class CaReadings:
    """The live certificates under one CA; `ca` None: an earlier version recorded them and no CA."""

    ca: str | None
    certificates: int
    nodes: int
    until: datetime


def node_trust_findings(database_url: str) -> Iterator[Finding]:
    """Needs the schema."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS) as connection:
        key_sets = connection.cursor(row_factory=class_row(KeySetReadings)).execute(_KEY_SETS).fetchone()
        cas = connection.cursor(row_factory=class_row(CaReadings)).execute(_CAS).fetchall()
    assert key_sets is not None
    yield _key_sets(key_sets)
    if key_sets.refusing:
        shown = ", ".join(key_sets.refusing[:NODES_NAMED_MAX])
        advice = (
            "compare BERTH_KEY_SET_FILE of the listeners with what the root signed, and look for a change of that file"
        )
        yield Finding("refused key sets", "bad", f"agents refuse the key set that they are offered ({shown}); {advice}")
    yield _cas(cas)


def _key_sets(readings: KeySetReadings) -> Finding:
    if readings.serial is None:
        return Finding("node key sets", "ok", "no node has reported one")
    detail = f"{readings.nodes - len(readings.behind)} of {readings.nodes} nodes with a certificate use serial {readings.serial}"
    if not readings.behind:
        return Finding("node key sets", "ok", detail)
    return Finding("node key sets", "warning", f"{detail}; not yet: {', '.join(readings.behind[:NODES_NAMED_MAX])}")


def _cas(cas: list[CaReadings]) -> Finding:
    if not cas:
        return Finding("node CAs", "ok", "no certificate is valid")
    shown = "; ".join(
        f"{one.ca or 'unknown (earlier version)'} signed {one.certificates} valid certificates of {one.nodes} nodes,"
        f" the last until {one.until:%Y-%m-%dT%H:%M:%SZ}"
        for one in cas
    )
    return Finding("node CAs", "ok", f"{shown}; keep each of them, others may be removed")
