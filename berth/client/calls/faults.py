"""Faults that tenants report, one function per path (docs/reference/http-api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, write
from berth.client.hardware.faults import FaultReport
from berth.client.models import Page

REPORTS = "/api/v1/admin/fault-reports"
OWN_REPORTS = "/api/v1/fault-reports"
Symptom = Literal["unreachable", "gpu_error", "slow", "network", "storage", "other"]


def report_fault(
    allocation_id: UUID,
    *,
    symptom: Symptom,
    evidence: str,
    details: Mapping[str, str] | None = None,
    replace: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[FaultReport]:
    """Report a fault of an active allocation; with `replace`, another one is placed and then takes over.

    Raises `NotFound`, `InvalidState`, `FaultReportsOpen`, `TooManyFaultReports`, and with `replace`
    `ReplacementInProgress`, `SkuUnavailable`, `BalanceDepleted`.
    """
    body = {
        "symptom": symptom, "evidence": evidence, "details": None if details is None else dict(details), "replace": replace,
    }  # fmt: skip
    return write("POST", f"/api/v1/allocations/{allocation_id}/report-fault", FaultReport, body, idempotency_key)


def list_fault_reports(
    *, every: bool | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[FaultReport]]:
    """Open fault reports of all tenants, oldest first; with `every`, also those whose units were released. Raises `Forbidden`."""
    return read_page(REPORTS, FaultReport, every="true" if every else None, limit=limit, cursor=cursor)


def get_fault_report(report_id: UUID) -> Call[FaultReport]:
    """One fault report, with its evidence. Raises `NotFound`, and `Forbidden` for tenant keys."""
    return read(f"{REPORTS}/{report_id}", FaultReport)


def list_own_fault_reports(
    *,
    every: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    tenant_id: UUID | None = None,
) -> Call[Page[FaultReport]]:
    """The tenant's open fault reports, oldest first; with `every`, also closed ones. `tenant_id` is for admin keys only."""
    of = None if tenant_id is None else str(tenant_id)
    return read_page(
        OWN_REPORTS, FaultReport, every="true" if every else None, limit=limit, cursor=cursor, tenant_id=of
    )


def get_own_fault_report(report_id: UUID, *, tenant_id: UUID | None = None) -> Call[FaultReport]:
    """One fault report of the tenant. Raises `NotFound`. `tenant_id` is for admin keys only."""
    return read(f"{OWN_REPORTS}/{report_id}", FaultReport, tenant_id=None if tenant_id is None else str(tenant_id))
