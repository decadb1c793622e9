"""`berth alloc report-fault|faults|fault`, `berth fault`: faults that tenants report of their allocations."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, TenantOption, command

app = typer.Typer(no_args_is_help=True, help="Faults that tenants reported (admin keys only).")

LISTED: list[Column] = [
    ("id", lambda r: r.report_id), ("symptom", lambda r: r.symptom), ("node", lambda r: r.node_id),
    ("slots", lambda r: r.slots), ("allocation", lambda r: r.allocation_id), ("reported", lambda r: r.reported_at),
    ("closed", lambda r: r.closed_at), ("replacement", lambda r: r.replacement_outcome),
]  # fmt: skip
SHOWN: list[Column] = [
    *LISTED[:5], ("tenant", lambda r: r.tenant_id), ("evidence", lambda r: r.evidence),
    ("details", lambda r: r.details or None), ("reported", lambda r: r.reported_at), ("by", lambda r: r.reported_by),
    ("closed", lambda r: r.closed_at), ("replaced by", lambda r: r.replacement_id),
    ("replacement", lambda r: r.replacement_outcome), ("waits until", lambda r: r.waits.until if r.waits else None),
]  # fmt: skip


class Symptom(StrEnum):
    """What is seen of a fault."""

    UNREACHABLE = "unreachable"
    GPU_ERROR = "gpu_error"
    SLOW = "slow"
    NETWORK = "network"
    STORAGE = "storage"
    OTHER = "other"


def report_fault(
    session: Session,
    allocation_id: Annotated[UUID, typer.Argument(help="the allocation's id")],
    symptom: Annotated[Symptom, typer.Option(help="what is seen of the fault")],
    evidence: Annotated[Path, typer.Option(help="file that shows the fault, for example a log", exists=True)],
    replace: Annotated[bool, typer.Option("--replace", help="place another allocation, which takes over")] = False,
) -> None:
    """Report a fault of an active allocation: its GPUs go into quarantine when it is released."""
    with session.client() as client:
        shown = evidence.read_text(errors="replace")
        show_one(
            session,
            client.report_fault(allocation_id, symptom=symptom.value, evidence=shown, replace=replace or None),
            SHOWN,
        )


def list_own(
    session: Session,
    every: Annotated[bool, typer.Option("--all", help="include those whose GPUs were released")] = False,
    tenant: TenantOption = None,
) -> None:
    """List the tenant's fault reports, oldest first."""
    with session.client() as client:
        found = client.iterate_own_fault_reports(every=every, tenant_id=session.tenant_id(client, tenant))
        show_list(session, found, LISTED, empty="no fault reports")


def show_own(
    session: Session,
    report_id: Annotated[UUID, typer.Argument(help="the report's id")],
    tenant: TenantOption = None,
) -> None:
    """Show a fault report of the tenant, and how far its replacement is."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        show_one(session, client.get_own_fault_report(report_id, tenant_id=owner), SHOWN)


@command(app, "list")
def list_reports(
    session: Session,
    every: Annotated[bool, typer.Option("--all", help="include those whose GPUs were released")] = False,
) -> None:
    """List fault reports of all tenants, oldest first."""
    with session.client() as client:
        show_list(session, client.iterate_fault_reports(every=every), LISTED, empty="no fault reports")


@command(app, "show")
def show(session: Session, report_id: Annotated[UUID, typer.Argument(help="the report's id")]) -> None:
    """Show a fault report with its evidence."""
    with session.client() as client:
        show_one(session, client.get_fault_report(report_id), SHOWN)
