"""`berth member` and `berth invitation`: the users of a tenant, and how one becomes its member."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

members = typer.Typer(no_args_is_help=True, help="Users of the tenant (its admins): invite, list, set roles, remove.")
invitations = typer.Typer(no_args_is_help=True, help="Invitations of users: list and revoke (admins), accept.")

TOKEN_VARIABLE = "BERTH_INVITATION_TOKEN"
MEMBER: list[Column] = [
    ("id", lambda m: m.id), ("subject", lambda m: m.subject), ("role", lambda m: m.role), ("name", lambda m: m.name),
    ("tenant", lambda m: m.tenant_id), ("invited by", lambda m: m.invited_by), ("joined", lambda m: m.joined_at),
]  # fmt: skip
INVITATION: list[Column] = [
    ("id", lambda i: i.id), ("role", lambda i: i.role), ("name", lambda i: i.name), ("created", lambda i: i.created_at),
    ("expires", lambda i: i.expires_at), ("accepted", lambda i: i.accepted_at), ("member", lambda i: i.accepted_by),
    ("revoked", lambda i: i.revoked_at),
]  # fmt: skip
NEW_INVITATION: list[Column] = [
    *((name, show) for name, show in INVITATION if name not in ("accepted", "member", "revoked")),
    ("token", lambda i: i.token),
]


class MemberRole(StrEnum):
    """What a member may do (docs/reference/access/roles.md)."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
    BILLING = "billing"


@command(members, "invite")
def invite_member(
    session: Session,
    role: Annotated[MemberRole, typer.Option(help="what the member may do")],
    name: Annotated[str | None, typer.Option(help="of the person, for the lists")] = None,
    expires_in_seconds: Annotated[
        int | None, typer.Option(min=60, help="how long the invitation is open; default: 7 days")
    ] = None,
) -> None:
    """Make an invitation. Its token is shown once: pass it to the user, for BERTH_INVITATION_TOKEN of `berth login`."""
    with session.client() as client:
        made = client.create_invitation(role=role.value, name=name, expires_in_seconds=expires_in_seconds)
        show_one(session, made, NEW_INVITATION)


@command(members, "list")
def list_members(session: Session) -> None:
    """Show the members of the tenant."""
    with session.client() as client:
        show_list(session, client.iterate_members(), MEMBER)


@command(members, "set-role")
def set_role(
    session: Session,
    member_id: Annotated[UUID, typer.Argument(help="the member's id")],
    role: Annotated[MemberRole, typer.Argument(help="what it may do from now on")],
) -> None:
    """Give a member another role."""
    with session.client() as client:
        show_one(session, client.set_member_role(member_id, role=role.value), MEMBER)


@command(members, "remove")
def remove_member(session: Session, member_id: Annotated[UUID, typer.Argument(help="the member's id")]) -> None:
    """Refuse the tokens of a member from now on."""
    with session.client() as client:
        client.remove_member(member_id)
        _ended(session, member_id, "removed")


@command(invitations, "list")
def list_invitations(session: Session) -> None:
    """Show the invitations of the tenant, without their tokens, ended ones too."""
    with session.client() as client:
        show_list(session, client.iterate_invitations(), INVITATION)


@command(invitations, "revoke")
def revoke_invitation(
    session: Session, invitation_id: Annotated[UUID, typer.Argument(help="the invitation's id")]
) -> None:
    """Let no user join by an invitation any more; a member that has joined stays."""
    with session.client() as client:
        client.revoke_invitation(invitation_id)
        _ended(session, invitation_id, "revoked")


@command(invitations, "accept")
def accept_invitation(session: Session) -> None:
    """Become a member, with a token of the issuer in BERTH_API_KEY; the invitation's is read from BERTH_INVITATION_TOKEN.

    `berth login` accepts the same variable.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise Refused(f"set {TOKEN_VARIABLE} to the token of the invitation", code="usage", exit_code=USAGE)
    with session.client() as client:
        show_one(session, client.accept_invitation(token=token), MEMBER)


def _ended(session: Session, object_id: UUID, what: str) -> None:
    if session.json:
        session.console.print_json(data={"id": str(object_id), what: True})
    else:
        session.console.print(f"{object_id} is {what}")
