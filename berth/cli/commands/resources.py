"""`berth resources`: nodes, slots, and resources that operators register."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Resources: everything that can be reserved.")

ResourceId = Annotated[
    str, typer.Argument(help="its id: a registered one, `node:<node id>`, or `slot:<node id>:<index>`")
]
RegisteredId = Annotated[str, typer.Argument(help="its id: letters, digits, `.`, `_`, `-`")]
KeyOption = Annotated[str | None, typer.Option(help="repeat an earlier request with its key")]
COLUMNS: list[Column] = [
    ("id", lambda r: r.id), ("kind", lambda r: r.kind), ("state", lambda r: r.state), ("reason", lambda r: r.reason),
    ("reservation", lambda r: r.reservation_id),
]  # fmt: skip
ROWS: list[Column] = [*COLUMNS, ("row version", lambda r: r.row_version)]


class Kind(StrEnum):
    """The origin of a resource."""

    NODE = "node"
    SLOT = "slot"
    REGISTERED = "registered"


@command(app, "list")
def list_(session: Session, kind: Annotated[Kind | None, typer.Option(help="only these")] = None) -> None:
    """List nodes, slots and registered resources with their state now."""
    with session.client() as client:
        show_list(session, client.iterate_resources(kind=None if kind is None else kind.value), COLUMNS)


@command(app, "show")
def show(session: Session, resource_id: ResourceId) -> None:
    """Show one resource."""
    with session.client() as client:
        show_one(session, client.get_resource(resource_id), ROWS)


@command(app, "create")
def create(session: Session, resource_id: RegisteredId, idempotency_key: KeyOption = None) -> None:
    """Register a resource: a licence seat, an address, an InfiniBand partition (admin keys only)."""
    with session.client() as client:
        show_one(session, client.create_resource(resource_id, idempotency_key=idempotency_key), ROWS)


@command(app, "out-of-service")
def take_out(
    session: Session,
    resource_id: RegisteredId,
    reason: Annotated[
        str, typer.Option(help="the reason, shown to tenants that request it and stored in the audit log")
    ],
    idempotency_key: KeyOption = None,
) -> None:
    """Refuse new holds on a registered resource; a present holder keeps it (admin keys only)."""
    with session.client() as client:
        taken = client.take_resource_out_of_service(resource_id, reason=reason, idempotency_key=idempotency_key)
        show_one(session, taken, ROWS)


@command(app, "in-service")
def put_back(session: Session, resource_id: RegisteredId, idempotency_key: KeyOption = None) -> None:
    """Allow holds on a registered resource again (admin keys only)."""
    with session.client() as client:
        show_one(session, client.put_resource_in_service(resource_id, idempotency_key=idempotency_key), ROWS)
