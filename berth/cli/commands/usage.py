"""`berth usage`: metered GPU time and its cost."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from berth.cli.printing import Column, show_list
from berth.cli.session import Session
from berth.cli.times import moment

_ENDS: list[Column] = [
    ("GPU hours", lambda u: f"{u.gpu_microseconds / 3.6e9:.4f}"), ("amount", lambda u: f"{u.amount_micro_units / 1e6:.6f}"),
    ("open", lambda u: "yes" if u.is_open else ""),
]  # fmt: skip


class By(StrEnum):
    """What the lines are grouped by."""

    ALLOCATION = "allocation"
    DAY = "day"
    TENANT = "tenant"


_COLUMNS: dict[By, list[Column]] = {
    By.ALLOCATION: [
        ("allocation", lambda u: u.allocation_id), ("sku", lambda u: u.sku), ("GPUs", lambda u: u.gpus),
        ("starts", lambda u: u.starts_at), ("ends", lambda u: u.ends_at), *_ENDS,
    ],
    By.DAY: [("day", lambda u: u.day), ("tenant", lambda u: u.tenant_id), ("allocations", lambda u: u.allocations), *_ENDS],
    By.TENANT: [("tenant", lambda u: u.tenant_id), ("allocations", lambda u: u.allocations), *_ENDS],
}  # fmt: skip


def usage(
    session: Session,
    by: Annotated[By, typer.Option(help="what the lines are grouped by")] = By.DAY,
    begin: Annotated[
        str | None, typer.Option("--from", help="start of the period; default: the start of the month, UTC")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="end of the period; default: now")] = None,
    tenant: Annotated[str | None, typer.Option(help="only this tenant, id or name (admin keys only)")] = None,
) -> None:
    """Show metered GPU time and its cost by day, allocation or tenant. One unit is a million micro-units."""
    first, last = moment(begin, "--from"), moment(end, "--to")
    with session.client() as client:
        found = client.iterate_usage(by=by.value, begin=first, end=last, tenant_id=session.tenant_id(client, tenant))
        show_list(session, found, _COLUMNS[by], empty="nothing was active")
