"""`berth tenant`, `berth ssh-key`: tenants and their SSH keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, as_json, cell, print_aligned, show_list, show_one
from berth.cli.session import Session, command

tenants = typer.Typer(no_args_is_help=True, help="Tenants (admin keys only).")
ssh_keys = typer.Typer(no_args_is_help=True, help="SSH public keys of a tenant.")

TENANT: list[Column] = [
    ("id", lambda t: t.id), ("name", lambda t: t.name), ("state", lambda t: t.state),
    ("gpus used", lambda t: t.gpus_used), ("gpus limit", lambda t: "none" if t.gpus_limit is None else t.gpus_limit),
    ("created", lambda t: t.created_at),
]  # fmt: skip
SSH_KEY: list[Column] = [
    ("id", lambda k: k.id), ("name", lambda k: k.name), ("fingerprint", lambda k: k.fingerprint),
    ("created", lambda k: k.created_at),
]  # fmt: skip


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
