"""`berth tenant`, `berth key`, `berth ssh-key`: tenants and their credentials."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, as_json, cell, print_aligned, show_list, show_one
from berth.cli.session import Session, command
from berth.cli.times import moment

tenants = typer.Typer(no_args_is_help=True, help="Tenants (admin keys only).")
keys = typer.Typer(no_args_is_help=True, help="API keys (admin keys only).")
ssh_keys = typer.Typer(no_args_is_help=True, help="SSH public keys of a tenant.")

TENANT: list[Column] = [
    ("id", lambda t: t.id), ("name", lambda t: t.name), ("state", lambda t: t.state),
    ("gpus used", lambda t: t.gpus_used), ("gpus limit", lambda t: "none" if t.gpus_limit is None else t.gpus_limit),
    ("created", lambda t: t.created_at),
]  # fmt: skip
KEY: list[Column] = [
    ("id", lambda k: k.id), ("name", lambda k: k.name), ("role", lambda k: k.role), ("prefix", lambda k: k.prefix),
    ("tenant", lambda k: k.tenant_id), ("created", lambda k: k.created_at), ("revoked", lambda k: k.revoked_at),
    ("expires", lambda k: k.expires_at), ("owner", lambda k: k.owner),
]  # fmt: skip
SSH_KEY: list[Column] = [
    ("id", lambda k: k.id), ("name", lambda k: k.name), ("fingerprint", lambda k: k.fingerprint),
    ("created", lambda k: k.created_at),
]  # fmt: skip


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


@command(tenants, "create")
def create_tenant(
    session: Session,
    name: Annotated[str, typer.Argument(help="unique")],
    gpus_limit: Annotated[int | None, typer.Option(min=0, help="most GPUs at once; default: the API's")] = None,
) -> None:
    """Make a tenant."""
    with session.client() as client:
        show_one(session, client.create_tenant(name=name, gpus_limit=gpus_limit), TENANT)


@command(tenants, "list")
def list_tenants(session: Session) -> None:
    """Show tenants with what they use, deleted ones too."""
    with session.client() as client:
        show_list(session, client.iterate_tenants(), TENANT)


@command(tenants, "quota")
def tenant_quota(
    session: Session,
    tenant: Annotated[str, typer.Argument(help="the tenant's id or name")],
    gpus_limit: Annotated[int | None, typer.Option(min=0, help="most GPUs at once")] = None,
    limit: Annotated[list[str] | None, typer.Option(help="QUOTA=NUMBER, or QUOTA=default; repeatable")] = None,
) -> None:
    """Show what a tenant uses of its quotas; with options set their limits first."""
    limits = dict(map(_limit_of, limit or ()))
    with session.client() as client:
        tenant_id = session.tenant_id(client, tenant)
        assert tenant_id is not None, "a tenant is named"
        if gpus_limit is not None:
            client.set_quota(tenant_id, gpus_limit=gpus_limit)
        if limits:
            client.set_limits(tenant_id, limits=limits)
        found = client.get_quotas(tenant_id)
    if session.json:
        session.console.print_json(data=as_json(found))
        return
    gpus = ["gpus", cell("none" if found.gpus_limit is None else found.gpus_limit), cell(found.gpus_used)]
    rows = [gpus, *([one.quota, cell(one.limit), cell(one.used)] for one in found.quotas)]
    print_aligned(session, [(["quota", "limit", "used"], "bold"), *((row, None) for row in rows)])


def _limit_of(text: str) -> tuple[str, int | None]:
    """One `QUOTA=NUMBER`. Raises `Refused`."""
    quota, _, number = text.partition("=")
    if number == "default":
        return quota, None
    if not (number.isascii() and number.isdecimal()):
        raise Refused("--limit takes QUOTA=NUMBER or QUOTA=default", code="usage", exit_code=USAGE)
    return quota, int(number)


@command(tenants, "delete")
def delete_tenant(session: Session, tenant: Annotated[str, typer.Argument(help="the tenant's id or name")]) -> None:
    """Delete a tenant that holds nothing. Its keys stop working; its id and name are never used again."""
    with session.client() as client:
        tenant_id = session.tenant_id(client, tenant)
        assert tenant_id is not None, "a tenant is named"
        client.delete_tenant(tenant_id)
    if session.json:
        session.console.print_json(data={"id": str(tenant_id), "deleted": True})
    else:
        session.console.print(f"{tenant_id} is deleted")


@command(keys, "create")
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="what it is for")],
    tenant: Annotated[str | None, typer.Option(help="the tenant's id or name")] = None,
    role: Annotated[
        Role | None, typer.Option(help="what it may do; default: admin of the tenant; operators' keys need one")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(help="the key is refused from this time on; default: the API's")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="the person or service account that uses it")] = None,
) -> None:
    """Make an API key. It is shown once: keep it, for example in BERTH_API_KEY."""
    if tenant is None and role is None:
        raise Refused("name --tenant for a tenant's key, or --role for an operator's", code="usage", exit_code=USAGE)
    chosen, fitting = role or Role.ADMIN, ROLES_OF_OPERATORS if tenant is None else ROLES_OF_TENANTS
    if chosen not in fitting:
        raise Refused(f"--role of this key is one of {', '.join(fitting)}", code="usage", exit_code=USAGE)
    end = moment(expires_at, "--expires-at")
    with session.client() as client:
        tenant_id = session.tenant_id(client, tenant)
        made = client.create_api_key(name=name, role=chosen.value, tenant_id=tenant_id, expires_at=end, owner=owner)
        show_one(session, made, [*KEY, ("key", lambda k: k.key)])


@command(keys, "list")
def list_keys(session: Session, tenant: Annotated[str | None, typer.Option(help="only this tenant's")] = None) -> None:
    """Show API keys, without their secrets."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant, existing=True)
        show_list(session, client.iterate_api_keys(tenant_id=owner), KEY)


@command(keys, "revoke")
def revoke_key(session: Session, key_id: Annotated[UUID, typer.Argument(help="the key's id")]) -> None:
    """Refuse a key from now on."""
    with session.client() as client:
        client.revoke_api_key(key_id)
    if session.json:
        session.console.print_json(data={"id": str(key_id), "revoked": True})
    else:
        session.console.print(f"{key_id} is revoked")


@command(ssh_keys, "add")
def add_ssh_key(
    session: Session,
    name: Annotated[str, typer.Argument(help="unique within the tenant")],
    public_key: Annotated[Path, typer.Argument(help="public key file in OpenSSH's format", exists=True)],
) -> None:
    """Store a public key for use by allocations."""
    text = public_key.read_text(errors="replace").strip()
    if "PRIVATE KEY" in text:
        raise Refused(f"{public_key} holds a private key; name the .pub file", code="usage", exit_code=USAGE)
    with session.client() as client:
        show_one(session, client.add_ssh_key(name=name, public_key=text), SSH_KEY)


@command(ssh_keys, "list")
def list_ssh_keys(session: Session) -> None:
    """List the tenant's public keys."""
    with session.client() as client:
        show_list(session, client.iterate_ssh_keys(), SSH_KEY)
