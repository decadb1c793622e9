"""Reads the database and the BMCs' files while a campaign goes on, and all evidence at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from psycopg.rows import dict_row

from berth.process.sealed_passwords import Purpose, SealBroken, read_key, unseal
from node_agent.key_set import read_public_keys, root_keys
from orchestrator.wipes.certificate import CertificateRefused, read_certificate, verify_certificate
from tests.campaign.history import History
from tests.campaign.machines.place import USER, Place
from tests.campaign.machines.records import Certified, MachineHistory, Quarantined, RunSight
from tests.campaign.machines.stage import RackedStage
from tests.support.waiting import pause

LOOK_SECONDS = 1.0
RUNS = """
select r.id, n.name as machine, r.kind, r.step, r.allocation_id, r.outcome, r.failure,
       case when r.ended_at is null then extract(epoch from clock_timestamp() - r.waits_until) else 0 end as late
from deploy_runs r join nodes n on n.id = r.node_id
"""
PASSWORDS = """
select b.site_id, b.node_id, c.generation, c.sealed from node_bmcs b join nodes n on n.id = b.node_id
join bmc_credentials c on c.node_id = b.node_id and c.recipient = b.site_id
where n.name = %s order by c.generation desc limit 2
"""
_QUARANTINES = """
select n.name as machine, q.reason, q.evidence, q.source from slot_quarantines q join nodes n on n.id = q.node_id
"""
_CERTIFICATES = """
select w.allocation_id, w.statement, w.countersignature, k.envelope as key_set
from wipe_certificates w join nodes n on n.id = w.node_id left join wipe_key_sets k on k.sha256 = w.key_set_sha256
where n.name = any(%s)
"""
_OPEN = "select n.name || ': ' || t.kind from bmc_tasks t join nodes n on n.id = t.node_id where t.ended_at is null"


class MachineWatch:
    """Watches the machines of a stage."""

    def __init__(self, stage: RackedStage, history: History) -> None:
        self._stage = stage
        self._found = history.machines
        self._key: X25519PrivateKey = read_key(stage.recovery_key)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._try()
            await pause(LOOK_SECONDS)

    async def _try(self) -> None:
        try:
            async with await psycopg.AsyncConnection.connect(
                self._stage.endpoints.database_url, autocommit=True, connect_timeout=3, row_factory=dict_row,
                options="-c statement_timeout=3000 -c lock_timeout=2000",
            ) as connection:  # fmt: skip
                for row in await (await connection.execute(RUNS)).fetchall():
                    run_sight(self._found, row)
                for place in self._stage.places:
                    await self._compare_password(connection, place)
        except psycopg.Error:
            return  # a fault; the next look comes

    async def _compare_password(self, connection: psycopg.AsyncConnection[dict[str, Any]], place: Place) -> None:
        """One that changes meanwhile is not judged."""
        before = place.read("bmc").get("passwords", {}).get(USER)
        rows = await (await connection.execute(PASSWORDS, (place.name,))).fetchall()
        if before is not None and place.read("bmc")["passwords"][USER] == before:
            self._found.strange_passwords += strange_password(place.name, before, rows, self._key)

    async def read_end(self) -> None:
        """Read everything once more, when nothing is allocated."""
        await self._try()
        for place in self._stage.places:
            self._found.seen[place.name] = place.seen()
            self._found.left[place.name] = place.read("bmc")
        with psycopg.connect(self._stage.endpoints.database_url, autocommit=True, row_factory=dict_row) as connection:
            self._found.quarantines = [Quarantined(**row) for row in connection.execute(_QUARANTINES)]
            names = [place.name for place in self._stage.places]
            rows = connection.execute(_CERTIFICATES, (names,)).fetchall()
            self._found.open_tasks = [str(row["?column?"]) for row in connection.execute(_OPEN)]
        roots = self._stage.authority.root_keys
        self._found.certificates = {row["allocation_id"]: certified(row, roots) for row in rows}


def run_sight(found: MachineHistory, row: dict[str, Any]) -> None:
    """Note a run as it is now."""
    late = max(0.0, float(row.pop("late")))
    before = found.runs.get(row["id"])
    found.runs[row["id"]] = RunSight(**row, late_seconds=max(late, before.late_seconds if before else 0.0))


def strange_password(machine: str, password: str, rows: list[dict[str, Any]], key: X25519PrivateKey) -> list[str]:
    """A sentence if none of these rows of the store opens to the password that the BMC has, with the recovery key."""
    if password in [_opened(row, key) for row in rows]:
        return []
    return [f"{machine}: none of the generations {[row['generation'] for row in rows]} opens its BMC"]


def _opened(row: dict[str, Any], key: X25519PrivateKey) -> str | None:
    purpose = Purpose(row["site_id"], row["node_id"], row["generation"])
    try:
        return unseal(row["sealed"], purpose, row["site_id"], key)
    except SealBroken:
        return None


def certified(row: dict[str, Any], roots: Path) -> Certified:
    """A stored certificate, verified from the root of the stack down as its tenant would."""
    allocation_id: UUID = row["allocation_id"]
    document = {
        "format": "berth-wipe-certificate-v1", "statement": row["statement"], "countersignature": row["countersignature"],
        "key_set": row["key_set"],
    }  # fmt: skip
    try:
        certificate = read_certificate(json.dumps(document).encode())
        found = verify_certificate(certificate, allocation_id, root_keys(read_public_keys(roots)))
    except CertificateRefused as refused:
        return Certified(allocation_id, None, refused.detail)
    return Certified(allocation_id, found.predicate.ended_at)
