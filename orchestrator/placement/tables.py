"""The table of claims: rectangles of units x time with one owner each.

Created by migrations/schema/placement.sql, which explains columns and indexes, revisions 0008 and 0026; a test keeps both equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Identity, Index, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE, TSTZRANGE, ExcludeConstraint

from orchestrator.database.metadata import METADATA, NOW, TIMESTAMPTZ, Domain

_TIME = Domain(
    "claim_time",
    TSTZRANGE,
    constraint_name="claim_during_half_open",
    check="not isempty(value) and lower_inc(value) and not upper_inc(value) and not lower_inf(value) "
    "and isfinite(lower(value)) and (upper_inf(value) or isfinite(upper(value)))",
)

claims = Table(
    "claims",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("node_id", Uuid),
    Column("tenant_id", Uuid),
    Column(
        "owner_kind",
        Domain("claim_owner_kind", Text, check="value in ('allocation', 'reservation', 'maintenance')"),
        nullable=False,
    ),
    Column("owner_id", Uuid, nullable=False),
    Column(
        "units",
        Domain("claim_units", INT8MULTIRANGE, constraint_name="claim_units_not_empty", check="not isempty(value)"),
        nullable=False,
    ),
    Column("during", _TIME, nullable=False),
    Column("booked", Boolean, nullable=False, server_default=text("true")),
    Column("occupied", Boolean, nullable=False, server_default=text("false")),
    Column("fence", BigInteger, nullable=False),
    Column("created_at", TIMESTAMPTZ, nullable=False, server_default=NOW),
    Column("closed_at", TIMESTAMPTZ),
    Column("occupied_from", TIMESTAMPTZ),
    Column("occupied_until", TIMESTAMPTZ),
    Column("waits_for", Text),
    Column("waits_since", TIMESTAMPTZ),
    Column("waits_until", TIMESTAMPTZ),
    Column("resource_id", Text),
    Column("inherited_fence", BigInteger),
    Column("moved_at", TIMESTAMPTZ),
    CheckConstraint("(closed_at is not null) = not (booked or occupied)", name="claim_closed_is_over"),
    CheckConstraint("not occupied or occupied_from is not null", name="claim_occupied_since"),
    CheckConstraint(
        "occupied_until is null or (not occupied and occupied_from is not null)", name="claim_occupied_until"
    ),
    CheckConstraint("node_id is null or resource_id is null", name="claim_is_somewhere"),
    CheckConstraint("(tenant_id is null) = (owner_kind = 'maintenance')", name="claim_has_tenant"),
    ExcludeConstraint(("units", "&&"), ("during", "&&"), where=text("booked"), using="gist", name="one_right"),
    ExcludeConstraint(("units", "&&"), where=text("occupied"), using="gist", name="one_occupant"),
    Index("claims_by_owner", "owner_id"),
    Index("claims_overdue", "waits_until", postgresql_where=text("waits_until is not null")),
    Index("claims_blocked", "node_id", postgresql_where=text("waits_for in ('operator', 'force_release')")),
    Index(
        "claims_open_by_resource", "resource_id", postgresql_where=text("closed_at is null and resource_id is not null")
    ),
    Index(
        "claims_windowed",
        "node_id",
        postgresql_where=text(
            "closed_at is null and node_id is not null and (owner_kind = 'reservation' or not booked "
            "or not upper_inf(during) or lower(during) > created_at)"
        ),
    ),
    Index("claims_open_by_node", "node_id", postgresql_where=text("closed_at is null and node_id is not null")),
    postgresql_with={
        "fillfactor": 80,
        "autovacuum_vacuum_scale_factor": 0.02,
        "autovacuum_vacuum_threshold": 2000,
        "autovacuum_analyze_scale_factor": 0.002,
        "autovacuum_analyze_threshold": 1000,
    },
)
