"""`berth audit`: the record of actions, as a list and as newline-delimited JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.printing import Column, show_list
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.client import AuditEntry

app = typer.Typer(no_args_is_help=True, help="The record of actions: all for admin keys, the tenant's for tenant keys.")


def _outcome(entry: AuditEntry) -> str:
    return entry.code if entry.status is None else f"{entry.status} {entry.code}"


LISTED: list[Column] = [
    ("sequence", lambda e: e.sequence), ("at", lambda e: e.at), ("principal", lambda e: e.principal.id),
    ("role", lambda e: e.principal.role), ("source", lambda e: e.source), ("action", lambda e: e.action),
    ("subject", lambda e: e.subject), ("outcome", _outcome),
]  # fmt: skip

Since = Annotated[datetime | None, typer.Option(help="recorded at this time or later")]
Until = Annotated[datetime | None, typer.Option(help="recorded before this time")]


@command(app, "list")
def list_audit(
    session: Session,
    subject: Annotated[str | None, typer.Option(help="only on this object, for example nodes/<id>")] = None,
    principal: Annotated[str | None, typer.Option(help="only by this principal (the id of its API key)")] = None,
    tenant: Annotated[UUID | None, typer.Option(help="only by principals of this tenant (admin keys only)")] = None,
    action: Annotated[str | None, typer.Option(help="only this action, for example allocation.create")] = None,
    outcome: Annotated[str | None, typer.Option(help="only with this outcome: ok, noop or a problem's code")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List audited actions, oldest first."""
    with session.client() as client:
        if client.me().tenant is None:
            found = client.iterate_audit(
                subject=subject, principal=principal, tenant_id=tenant, action=action, outcome=outcome, since=_utc(since),
                until=_utc(until),
            )  # fmt: skip
        else:
            found = client.iterate_own_audit(
                subject=subject,
                principal=principal,
                action=action,
                outcome=outcome,
                since=_utc(since),
                until=_utc(until),
            )
        show_list(session, found, LISTED, empty="no audited actions")


def _utc(at: datetime | None) -> datetime | None:
    """The time with an offset: UTC if none was given."""
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
