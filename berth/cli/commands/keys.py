"""`berth key`: API keys, of all tenants and operators for an operator, of its tenant for a tenant's admin."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.access.approvals import approval_shown
from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command
from berth.cli.times import moment

if TYPE_CHECKING:
    from berth.client import Client

app = typer.Typer(no_args_is_help=True, help="API keys: all for admin keys, the tenant's for its admins.")

KEY: list[Column] = [
    ("id", lambda k: k.id), ("name", lambda k: k.name), ("role", lambda k: k.role), ("prefix", lambda k: k.prefix),
    ("tenant", lambda k: k.tenant_id), ("created", lambda k: k.created_at), ("revoked", lambda k: k.revoked_at),
    ("expires", lambda k: k.expires_at), ("used", lambda k: k.last_used_at), ("owner", lambda k: k.owner),
    ("break-glass", lambda k: "yes" if k.break_glass else "no"),
    ("scopes", lambda k: "all" if k.scopes is None else " ".join(k.scopes)),
]  # fmt: skip
NEW_KEY: list[Column] = [
    *((name, show) for name, show in KEY if name not in ("revoked", "used")),
    ("key", lambda k: k.key),
]


class Role(StrEnum):
    """What a key may do; those of a tenant and of operators differ (docs/reference/access/roles.md)."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
    BILLING = "billing"
    SUPPORT = "support"
    FLEET = "fleet"
    FINANCE = "finance"


ROLES_OF_TENANTS = (Role.VIEWER, Role.MEMBER, Role.ADMIN, Role.BILLING)
ROLES_OF_OPERATORS = (Role.VIEWER, Role.SUPPORT, Role.FLEET, Role.FINANCE, Role.ADMIN)


@command(app, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="what it is for")],
    tenant: Annotated[str | None, typer.Option(help="the tenant's id or name (admin keys only)")] = None,
    role: Annotated[
        Role | None, typer.Option(help="what it may do; default with --tenant: admin of the tenant; else required")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(help="the key is refused from this time on; default: the API's")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="the person or service account that uses it")] = None,
    break_glass: Annotated[
        bool, typer.Option("--break-glass", help="an operator's key for emergencies: its uses are events")
    ] = False,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="only this within its role, as allocations:read or allocations:write; repeatable"),
    ] = None,
) -> None:
    """Make an API key. It is shown once: keep it, for example in BERTH_API_KEY."""
    if tenant is None and role is None:
        raise Refused("name --role, or --tenant for a key of a tenant's admin", code="usage", exit_code=USAGE)
    chosen, end, scopes = role or Role.ADMIN, moment(expires_at, "--expires-at"), scope or None
    if tenant is not None:
        _require(chosen, ROLES_OF_TENANTS)
        _require_no(break_glass)
    with session.client() as client, approval_shown(session):
        if tenant is None and _is_tenants(client):
            _require(chosen, ROLES_OF_TENANTS)
            _require_no(break_glass)
            made = client.create_own_api_key(name=name, role=chosen.value, expires_at=end, owner=owner, scopes=scopes)
        else:
            if tenant is None:
                _require(chosen, ROLES_OF_OPERATORS)
            tenant_id = session.tenant_id(client, tenant)
            made = client.create_api_key(
                name=name, role=chosen.value, tenant_id=tenant_id, expires_at=end, owner=owner,
                break_glass=True if break_glass else None, scopes=scopes,
            )  # fmt: skip
        show_one(session, made, NEW_KEY)


@command(app, "list")
def list_keys(
    session: Session,
    tenant: Annotated[str | None, typer.Option(help="only this tenant's (admin keys only)")] = None,
) -> None:
    """Show API keys, without their secrets."""
    with session.client() as client:
        if tenant is None and _is_tenants(client):
            show_list(session, client.iterate_own_api_keys(), KEY)
        else:
            owner = session.tenant_id(client, tenant, existing=True)
            show_list(session, client.iterate_api_keys(tenant_id=owner), KEY)


@command(app, "rotate")
def rotate_key(
    session: Session,
    key_id: Annotated[UUID, typer.Argument(help="the key's id")],
    overlap_seconds: Annotated[
        int | None, typer.Option(min=0, help="how long the old key stays valid; default: a day")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(help="of the new key; default: it has the length of life of the old one")
    ] = None,
) -> None:
    """Make a key of the same name, role, owner and scopes in place of this one. It is shown once."""
    end = moment(expires_at, "--expires-at")
    with session.client() as client, approval_shown(session):
        rotate = client.rotate_own_api_key if _is_tenants(client) else client.rotate_api_key
        made = rotate(key_id, overlap_seconds=overlap_seconds, expires_at=end)
        show_one(session, made, [*NEW_KEY, ("old key ends", lambda k: k.replaced_expires_at)])


@command(app, "revoke")
def revoke_key(session: Session, key_id: Annotated[UUID, typer.Argument(help="the key's id")]) -> None:
    """Refuse a key from now on."""
    with session.client() as client, approval_shown(session):
        if _is_tenants(client):
            client.revoke_own_api_key(key_id)
        else:
            client.revoke_api_key(key_id)
        if session.json:
            session.console.print_json(data={"id": str(key_id), "revoked": True})
        else:
            session.console.print(f"{key_id} is revoked")


def _is_tenants(client: Client) -> bool:
    """Whether the command runs with a tenant's key or token."""
    return client.me().tenant is not None


def _require(role: Role, fitting: tuple[Role, ...]) -> None:
    """Raise `Refused` for a role that does not fit the kind of the key."""
    if role not in fitting:
        raise Refused(f"--role of this key is one of {', '.join(fitting)}", code="usage", exit_code=USAGE)


def _require_no(break_glass: bool) -> None:
    """Raise `Refused` for a break-glass key of a tenant."""
    if break_glass:
        raise Refused("--break-glass is for operators' keys", code="usage", exit_code=USAGE)
