"""What the tables of a run say, in the model's words, and where they differ from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg

from tests.model.log import units_of
from tests.model.state import Claim, Quota, State

_RESOURCES: LiteralString = """
select 'node:' || n.id, json_agg(json_build_array(s.unit, s.unit + 1)), n.state <> 'active' or not n.online
from nodes n join slots s on s.node_id = n.id group by n.id
union all
select 'slot:' || n.id || ':' || s.slot_index, json_build_array(json_build_array(s.unit, s.unit + 1)),
       n.state <> 'active' or not n.online or s.state <> 'in_service'
from nodes n join slots s on s.node_id = n.id
union all
select id, json_build_array(json_build_array(unit, unit + 1)), state <> 'in_service' from resources
"""
# The model has no maintenance windows: their claims are tests/campaign/judging/fleet's.
_CLAIMS: LiteralString = """
select owner_kind || 's/' || owner_id,
       (select json_agg(json_build_array(lower(part), upper(part))) from unnest(units) part),
       lower(during), upper(during), booked, occupied from claims where owner_kind <> 'maintenance'
"""
_ALLOCATIONS: LiteralString = """
select id::text, tenant_id::text, case state when 'provisioning' then 'requested' else state end from allocations
"""
_QUOTAS: LiteralString = "select tenant_id::text, gpus_limit, gpus_used from tenant_quotas"
_OPERATIONS: LiteralString = """
select scope::text, key, code from operations
"""


@dataclass(frozen=True, slots=True)
class Tables:
    """The rows as a person would compare them."""

    reservations: dict[str, tuple[Any, ...]]
    allocations: dict[str, tuple[str, str]]
    claims: list[tuple[str, Claim]]
    quotas: dict[str, Quota]
    operations: dict[tuple[str, str], str]
    retired_through: int


def beginning(connection: psycopg.Connection[Any]) -> State:
    """The model before the first event: what can be had, and the limits."""
    rows = connection.execute(_RESOURCES).fetchall()
    quotas = {tenant: Quota(limit, 0) for tenant, limit, _ in connection.execute(_QUOTAS)}
    return State(
        resources={name: units_of(units) for name, units, _ in rows},
        out_of_service=frozenset(name for name, _, gone in rows if gone),
        quotas=quotas,
    )


def read_tables(connection: psycopg.Connection[Any]) -> Tables:
    """All of it. The caller sees to it that nothing moves meanwhile."""
    claims = [
        (owner, Claim(units_of(units), starts_at, ends_at, 0, booked, occupied))
        for owner, units, starts_at, ends_at, booked, occupied in connection.execute(_CLAIMS)
    ]
    columns: LiteralString = "select id::text, tenant_id::text, holder_id, state, starts_at, ends_at, hold_until"
    (retired,) = connection.execute("select position from reservation_watermark").fetchone() or (0,)
    return Tables(
        {row[0]: tuple(row[1:]) for row in connection.execute(columns + " from reservations")},
        {id_: (tenant, state) for id_, tenant, state in connection.execute(_ALLOCATIONS)},
        claims,
        {tenant: Quota(limit, used) for tenant, limit, used in connection.execute(_QUOTAS)},
        {(scope, key): code for scope, key, code in connection.execute(_OPERATIONS)},
        retired,
    )


def differences(state: State, tables: Tables) -> list[str]:
    """One sentence for each difference between model and tables."""
    return [*_of_reservations(state, tables), *_of_claims(state, tables), *_of_allocations(state, tables),
            *_of_quotas(state, tables), *_of_operations(state, tables)]  # fmt: skip


def _of_reservations(state: State, tables: Tables) -> Iterator[str]:
    for id_, one in state.reservations.items():
        mine = (one.tenant, one.holder, one.state, one.starts_at, one.ends_at, one.hold_until)
        theirs = tables.reservations.get(id_)
        if theirs is None and _retired(id_, one.state, tables):
            continue
        if theirs != mine:
            yield f"reservation {id_}: the table says {_said(theirs)}, the model {_said(mine)}"
    for id_ in tables.reservations.keys() - state.reservations.keys():
        yield f"reservation {id_}: the table says {_said(tables.reservations[id_])}, the log has no event of it"


def _of_claims(state: State, tables: Tables) -> Iterator[str]:
    theirs = Counter(_shown(owner, claim) for owner, claim in tables.claims)
    for owner, claim in state.claims():
        # Where the log does not say whether something is on the units, the row may say either.
        told = (False, True) if claim.occupied is None else (claim.occupied,)
        fits = [key for key in (_shown(owner, claim, occupied) for occupied in told) if theirs[key] > 0]
        id_ = owner.partition("/")[2]
        if fits:
            theirs[fits[0]] -= 1
        elif not (id_ in state.reservations and _retired(id_, state.reservations[id_].state, tables)):
            yield f"claim: the model says {' '.join(_shown(owner, claim))}; no such row"
    for key in theirs.elements():
        yield f"claim: there is a row {' '.join(key)}; the model has none"


def _of_allocations(state: State, tables: Tables) -> Iterator[str]:
    mine = {id_: (one.tenant, one.state) for id_, one in state.allocations.items()}
    for id_ in mine.keys() | tables.allocations.keys():
        if mine.get(id_) != tables.allocations.get(id_):
            yield f"allocation {id_}: the table says {tables.allocations.get(id_)}, the model {mine.get(id_)}"


def _of_quotas(state: State, tables: Tables) -> Iterator[str]:
    for tenant in state.quotas.keys() | tables.quotas.keys():
        mine, theirs = state.quotas.get(tenant, Quota()), tables.quotas.get(tenant, Quota())
        if mine.used != theirs.used:
            yield f"quota of {tenant}: the table says {theirs.used} GPUs in use, the model {mine.used}"


def _of_operations(state: State, tables: Tables) -> Iterator[str]:
    for (scope, key), code in tables.operations.items():
        if scope not in tables.quotas:
            continue  # an operator's, whose refusals are no tenant's events
        known = state.operations.get((scope, key))
        if known is None or known.code != code:
            yield f"operation {key} of {scope}: the table says {code}, the log {known and known.code}"
    # What an operator did to a tenant's allocation is the tenant's event, under the operator's key.
    keys = {key for _, key in tables.operations}
    for scope, key in state.operations.keys() - tables.operations.keys():
        if key in keys:
            continue
        yield f"operation {key} of {scope}: the log says {state.operations[scope, key].code}, the table has none"


def _retired(id_: str, state: str, tables: Tables) -> bool:
    position = int(id_.replace("-", ""), 16) & ((1 << 64) - 1)
    return state not in ("hold", "confirmed") and id_ not in tables.reservations and position <= tables.retired_through


def _shown(owner: str, claim: Claim, occupied: bool | None = None) -> tuple[str, ...]:
    on = claim.occupied if occupied is None else occupied
    window = f"[{_utc(claim.starts_at)}, {'' if claim.ends_at is None else _utc(claim.ends_at)})"
    return owner, f"{sorted(claim.units)}", window, f"booked={claim.booked}", f"occupied={on}"


def _said(row: tuple[Any, ...] | None) -> str:
    parts = () if row is None else row
    return " ".join(_utc(part) if isinstance(part, datetime) else str(part) for part in parts) or "nothing"


def _utc(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()
