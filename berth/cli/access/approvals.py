"""`berth approvals`: requests of operators that a second operator approves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from berth.client.approvals import ApprovalPerson

app = typer.Typer(no_args_is_help=True, help="Requests that a second operator approves (admin keys only).")


def _person(person: ApprovalPerson | None) -> str | None:
    """The operator's owner, or the id of its key or subject."""
    return None if person is None else person.owner or str(person.principal_id)


LISTED: list[Column] = [
    ("id", lambda a: a.approval_id), ("action", lambda a: a.action), ("subject", lambda a: a.subject),
    ("state", lambda a: a.state), ("requested by", lambda a: _person(a.requested_by)),
    ("requested", lambda a: a.requested_at), ("until", lambda a: a.waits_until),
]  # fmt: skip
SHOWN: list[Column] = [
    *LISTED, ("parameters", lambda a: a.parameters), ("roles", lambda a: a.roles_required),
    ("decided by", lambda a: _person(a.decided_by)), ("reason", lambda a: a.decision_reason), ("ended", lambda a: a.ended_at),
    ("result", lambda a: a.result),
]  # fmt: skip
REQUESTED: list[Column] = [*SHOWN, ("key", lambda a: a.key)]

ApprovalId = Annotated[UUID, typer.Argument(help="the approval's id")]


class State(StrEnum):
    """Whether the request waits, or how the wait ended."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


@contextmanager
def approval_shown(session: Session) -> Iterator[None]:
    """Show the recorded request where the deployment needs a second operator for the command in the block."""
    from berth.client import ApprovalRequested

    try:
        yield
    except ApprovalRequested as requested:
        show_one(session, requested.approval, REQUESTED)
        if not session.json:
            session.errors.print(
                f"nothing was done yet: another operator runs `berth approvals approve {requested.approval.approval_id}`",
                markup=False, soft_wrap=True,
            )  # fmt: skip


@command(app, "list")
def list_approvals(
    session: Session, state: Annotated[State | None, typer.Option(help="only these, for example pending")] = None
) -> None:
    """List requests, oldest first."""
    with session.client() as client:
        found = client.iterate_approvals(state=None if state is None else state.value)
        show_list(session, found, LISTED, empty="no approvals")


@command(app, "show")
def show_approval(session: Session, approval_id: ApprovalId) -> None:
    """Show one request: its action, its requester, and what became of it."""
    with session.client() as client:
        show_one(session, client.get_approval(approval_id), SHOWN)


@command(app, "approve")
def approve(
    session: Session,
    approval_id: ApprovalId,
    reason: Annotated[str | None, typer.Option(help="what you checked; stored in the audit log")] = None,
) -> None:
    """Approve another operator's request: its action is done at once, under its own guards."""
    with session.client() as client:
        show_one(session, client.approve_request(approval_id, reason=reason), SHOWN)


@command(app, "reject")
def reject(
    session: Session,
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="why it is not done; stored in the audit log")],
) -> None:
    """Reject another operator's request."""
    with session.client() as client:
        show_one(session, client.reject_request(approval_id, reason=reason), SHOWN)


@command(app, "withdraw")
def withdraw(session: Session, approval_id: ApprovalId) -> None:
    """Withdraw your request."""
    with session.client() as client:
        show_one(session, client.withdraw_request(approval_id), SHOWN)
