"""`berth reserve`: hold resources or GPUs for a window, confirm or cancel a hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import typer

from berth.cli.commands.allocations import find_ssh_key_ids, read_labels
from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, TenantOption, command
from berth.cli.times import moment
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.client import Client

app = typer.Typer(no_args_is_help=True, help="Reservations: a hold or a confirmed window on resources or GPUs.")

ReservationId = Annotated[UUID, typer.Argument(help="the reservation's id")]
HolderOption = Annotated[str, typer.Option("--holder", help="the holder: any text, compared exactly")]
KeyOption = Annotated[str | None, typer.Option(help="repeat an earlier request with its key")]

STATES = ("hold", "confirmed", "cancelled", "expired", "consumed", "released")


def _wanted(reservation: Any) -> object:
    if reservation.sku is None:
        return reservation.resources
    times = f"{reservation.count or 1} x {reservation.gpus}"
    return f"{times} {reservation.sku} in {reservation.region}"


COLUMNS: list[Column] = [
    ("id", lambda r: r.reservation_id), ("state", lambda r: r.status), ("what", _wanted), ("holder", lambda r: r.holder_id),
    ("starts", lambda r: r.starts_at), ("ends", lambda r: r.ends_at), ("expires", lambda r: r.expires_at),
    ("name", lambda r: r.name),
]  # fmt: skip
ROWS: list[Column] = [
    ("id", lambda r: r.reservation_id), ("state", lambda r: r.status), ("result", lambda r: r.result),
    ("what", _wanted), ("resources", lambda r: r.resources or None), ("holder", lambda r: r.holder_id),
    ("name", lambda r: r.name), ("starts", lambda r: r.starts_at), ("ends", lambda r: r.ends_at),
    ("expires", lambda r: r.expires_at), ("starts by itself", lambda r: r.allocation),
    ("allocations", lambda r: r.allocation_ids or None),
    ("waits for", lambda r: f"{r.waits.for_} since {r.waits.since:%H:%M:%S}" if r.waits else None),
    ("failure", lambda r: f"{r.failure.code}: {r.failure.detail}" if r.failure else None),
    ("created version", lambda r: r.created_version), ("released version", lambda r: r.released_version),
    ("readable until", lambda r: r.retire_after), ("tenant", lambda r: r.tenant_id),
]  # fmt: skip


def _template(
    client: Client,
    starts: bool,
    ssh_key: list[str] | None,
    image: str | None,
    label: list[str] | None,
    restart: str | None,
) -> JsonObject | None:
    """The template of the allocation that starts automatically, in the API's format."""
    if not starts:
        if ssh_key or image or label or restart:
            raise Refused(
                "--ssh-key, --image, --label and --restart are for --starts-by-itself", code="usage", exit_code=USAGE
            )
        return None
    template: JsonObject = {"ssh_key_ids": [str(key) for key in find_ssh_key_ids(client, ssh_key or [])]}
    given = {"image": image, "labels": read_labels(label) if label else None, "restart_policy": restart}
    return template | {name: value for name, value in given.items() if value is not None}


@command(app, "create")
def create(
    session: Session,
    holder: HolderOption,
    resource: Annotated[
        list[str] | None,
        typer.Option(help="a resource to hold, repeatable, all or none; `berth resources list` shows them"),
    ] = None,
    sku: Annotated[
        str | None, typer.Option(help="instead: the SKU to hold GPUs of; `berth sku list` shows them")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="how many GPUs, on one node")] = None,
    region: Annotated[str | None, typer.Option(help="the region; `berth region list` shows them")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="how many times; default: 1")] = None,
    starts_at: Annotated[str | None, typer.Option(help="when it starts; default: now")] = None,
    ends_at: Annotated[str | None, typer.Option(help="when it ends; default: open-ended")] = None,
    ttl: Annotated[int | None, typer.Option(help="seconds until it expires unless confirmed; default: 900")] = None,
    name: Annotated[str | None, typer.Option(help="a name for people; need not be unique")] = None,
    starts_by_itself: Annotated[
        bool, typer.Option("--starts-by-itself", help="with --sku: create the allocation when the window starts")
    ] = False,
    ssh_key: Annotated[
        list[str] | None,
        typer.Option("--ssh-key", help="for that allocation: name or id, repeatable; default: the tenant's only key"),
    ] = None,
    image: Annotated[str | None, typer.Option(help="for that allocation; default: the SKU's")] = None,
    label: Annotated[list[str] | None, typer.Option(help="for that allocation: name=value, repeatable")] = None,
    restart: Annotated[
        Literal["always", "never"] | None,
        typer.Option(help="for that allocation: whether the node starts the guest again if it ends by itself"),
    ] = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Hold resources, or GPUs of a SKU, for a window, exclusively until the hold expires, is cancelled, or ends."""
    placed = (sku, gpus, region)
    if bool(resource) == any(placed) or (any(placed) and None in placed):
        raise Refused("give --resource, or --sku, --gpus and --region", code="usage", exit_code=USAGE)
    if resource and (count or starts_by_itself):
        raise Refused("--count and --starts-by-itself are for --sku", code="usage", exit_code=USAGE)
    with session.client() as client:
        made = client.create_reservation(
            holder_id=holder, resources=resource or None, sku=sku, gpus=gpus, region=region, count=count,
            starts_at=moment(starts_at, "--starts-at"), ends_at=moment(ends_at, "--ends-at"), ttl_seconds=ttl, name=name,
            allocation=_template(client, starts_by_itself, ssh_key, image, label, restart), idempotency_key=idempotency_key,
        )  # fmt: skip
        show_one(session, made, ROWS)


@command(app, "list")
def list_(
    session: Session,
    state: Annotated[str | None, typer.Option(help=f"one of {', '.join(STATES)}")] = None,
    tenant: TenantOption = None,
) -> None:
    """List reservations."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        show_list(session, client.iterate_reservations(state=state, tenant_id=owner), COLUMNS)


@command(app, "show")
def show(session: Session, reservation_id: ReservationId, tenant: TenantOption = None) -> None:
    """Show one reservation."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        show_one(session, client.get_reservation(reservation_id, tenant_id=owner), ROWS)


@command(app, "confirm")
def confirm(
    session: Session,
    reservation_id: ReservationId,
    holder: HolderOption,
    tenant: TenantOption = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Confirm a hold, so that it does not expire. Safe to repeat."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        confirmed = client.confirm_reservation(
            reservation_id, holder_id=holder, idempotency_key=idempotency_key, tenant_id=owner
        )
        show_one(session, confirmed, ROWS)


@command(app, "cancel")
def cancel(
    session: Session,
    reservation_id: ReservationId,
    holder: HolderOption,
    tenant: TenantOption = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Cancel a hold or a confirmed window. Safe to repeat."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        cancelled = client.cancel_reservation(
            reservation_id, holder_id=holder, idempotency_key=idempotency_key, tenant_id=owner
        )
        show_one(session, cancelled, ROWS)
