"""`berth alloc`: create, show, wait for, log in to and release allocations; `berth force-release`, `force-cleanup`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from berth.cli.access.approvals import approval_shown
from berth.cli.commands import ssh_login
from berth.cli.commands.waiting import wait_with_progress
from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, as_json, show_list, show_one, stated
from berth.cli.session import Session, TenantOption, command
from berth.cli.times import moment

if TYPE_CHECKING:
    from berth.client import Allocation, Client, TimelineEntry
    from berth.client.models import AllocationHealth, Connection, Guest

app = typer.Typer(no_args_is_help=True, help="Allocations: the GPUs or nodes that a tenant uses.")

AllocationId = Annotated[UUID, typer.Argument(help="the allocation's id")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0, help="seconds to wait")]


def _server(allocation: Allocation) -> Connection | None:
    """Where the tenant logs in: to the rescue system if the machine runs it."""
    return (allocation.guest and allocation.guest.rescue) or allocation.connection


def _log_in(allocation: Allocation) -> str | None:
    where = _server(allocation)
    if where is None or allocation.status != "active":
        return None
    return f"{where.user}@{where.host} port {where.port}"


def _guest(guest: Guest) -> str:
    failed = f", {guest.failure.code}: {guest.failure.detail}" if guest.failure else ""
    return f"{guest.state}{f', {guest.verb} in progress' if guest.verb else ''}{failed}"


def _health(health: AllocationHealth) -> str:
    if health.since is None or health.last_proof_of_life_at is None:
        return health.state
    last = f"{health.last_proof_of_life_at:%Y-%m-%d %H:%M:%S}"
    until = f", until {health.waits_until:%Y-%m-%d %H:%M:%S}" if health.waits_until else ""
    return f"{health.state}: {health.cause}, last proof of life {last}{until}"


STATES = ("requested", "provisioning", "active", "releasing", "released", "release_failed", "failed")
COLUMNS: list[Column] = [
    ("id", lambda a: a.allocation_id), ("state", lambda a: a.status), ("sku", lambda a: a.sku),
    ("gpus", lambda a: a.gpus), ("region", lambda a: a.region), ("node", lambda a: a.node),
    ("name", lambda a: a.name), ("requested", lambda a: a.requested_at),
]  # fmt: skip
ROWS: list[Column] = [
    ("id", lambda a: a.allocation_id), ("state", lambda a: a.status), ("sku", lambda a: a.sku),
    ("gpus", lambda a: f"{a.gpus} x {a.gpu_model}"), ("region", lambda a: a.region), ("image", lambda a: a.image),
    ("name", lambda a: a.name), ("labels", lambda a: a.labels or None), ("ssh keys", lambda a: a.ssh_key_ids or None),
    ("node", lambda a: f"{a.node}, slots {', '.join(map(str, a.slots))}" if a.node else None),
    ("log in", _log_in), ("rescue host key", lambda a: a.guest and a.guest.rescue and a.guest.rescue.host_key),
    ("address", lambda a: f"{a.network.address} in {a.network.subnet}" if a.network else None),
    ("guest", lambda a: _guest(a.guest) if a.guest else None),
    ("first boot", lambda a: stated(f.status, f.since, f.detail) if a.guest and (f := a.guest.first_boot) else None),
    ("restart policy", lambda a: a.restart_policy), ("health", lambda a: _health(a.health) if a.health else None),
    ("waits for", lambda a: f"{a.waits.for_} since {a.waits.since:%H:%M:%S}" if a.waits else None),
    ("failure", lambda a: f"{a.failure.code}: {a.failure.detail}" if a.failure else None),
    ("next step", lambda a: a.failure.next_step if a.failure else None),
    ("release", lambda a: {k: v for k, v in a.release_result.items() if k != "evidence"} if a.release_result else None),
    ("reservation", lambda a: a.reservation_id), ("ends", lambda a: a.ends_at),
    ("requested", lambda a: a.requested_at), ("active", lambda a: a.active_at), ("releasing", lambda a: a.releasing_at),
    ("released", lambda a: a.released_at), ("release failed", lambda a: a.release_failed_at),
    ("failed", lambda a: a.failed_at), ("tenant", lambda a: a.tenant_id),
]  # fmt: skip
TIMELINE: list[Column] = [
    ("at", lambda e: e.at.astimezone().strftime("%H:%M:%S.%f")[:-3]), ("kind", lambda e: e.kind),
    ("what", lambda e: f"{e.from_ or ''} -> {e.to}" if e.to else e.phase or e.code),
    ("by", lambda e: e.actor.kind), ("fence", lambda e: e.fence), ("detail", lambda e: e.detail),
]  # fmt: skip


def read_labels(pairs: list[str]) -> dict[str, str]:
    """Parse labels. Raises `Refused` for one that is not `name=value`."""
    labels = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Refused(f"a label must be name=value, not {pair!r}", code="usage", exit_code=USAGE)
        labels[name] = value
    return labels


def find_ssh_key_ids(client: Client, wanted: list[str]) -> list[UUID]:
    """Find key ids by name or id; without names, the tenant's only key. Raises `Refused`."""
    stored = {key.name: key.id for key in client.iterate_ssh_keys()}
    if not wanted:
        if len(stored) != 1:
            known = ", ".join(sorted(stored)) or "none yet; add one with `berth ssh-key add`"
            raise Refused(f"name the SSH keys with --ssh-key (known: {known})", code="usage", exit_code=USAGE)
        return list(stored.values())
    found = []
    for name in wanted:
        if name in stored:
            found.append(stored[name])
            continue
        try:
            found.append(UUID(name))
        except ValueError as error:
            known = ", ".join(sorted(stored)) or "none yet"
            raise Refused(f"there is no SSH key named {name} (known: {known})", code="ssh_key_not_found") from error
    return found


def _require_one_way(sku: str | None, placed: tuple[object, ...], reserved: tuple[object, ...]) -> None:
    """Raise `Refused` unless either a place or a reservation is given completely; the SKU goes with both."""
    if sku is not None and None not in placed and not any(reserved):
        return
    if None not in reserved and not any(placed):
        return
    raise Refused(
        "give --sku, --gpus and --region, or --reservation and --holder (and --sku if the reservation holds named resources)",
        code="usage",
        exit_code=USAGE,
    )


@command(app, "create")
def create(
    session: Session,
    sku: Annotated[str | None, typer.Option(help="the SKU; `berth sku list` shows them")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="how many GPUs, on one node")] = None,
    region: Annotated[str | None, typer.Option(help="the region; `berth region list` shows them")] = None,
    reservation: Annotated[
        UUID | None, typer.Option(help="instead: start a reservation; `berth reserve list` shows them")
    ] = None,
    holder: Annotated[str | None, typer.Option(help="the reservation's holder")] = None,
    ssh_key: Annotated[
        list[str] | None,
        typer.Option("--ssh-key", help="name or id of a stored key, repeatable; default: the tenant's only key"),
    ] = None,
    image: Annotated[str | None, typer.Option(help="image to boot; default: the SKU's")] = None,
    name: Annotated[str | None, typer.Option(help="a name for people; need not be unique")] = None,
    label: Annotated[list[str] | None, typer.Option(help="name=value, repeatable")] = None,
    user_data: Annotated[
        Path | None, typer.Option(help="file passed to the machine at first boot", exists=True)
    ] = None,
    restart: Annotated[
        Literal["always", "never"] | None,
        typer.Option(help="whether the node starts the guest again if it ends by itself; default: always"),
    ] = None,
    ends_at: Annotated[str | None, typer.Option(help="time of automatic release; default: none")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="repeat an earlier request with its key")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="wait until it is active")] = False,
    timeout: TimeoutOption = 300.0,
) -> None:
    """Create an allocation, on free GPUs or on those of a reservation."""
    _require_one_way(sku, (gpus, region), (reservation, holder))
    with session.client() as client:
        made = client.create_allocation(
            sku=sku, gpus=gpus, region=region, reservation_id=reservation, holder_id=holder,
            ends_at=moment(ends_at, "--ends-at"), ssh_key_ids=find_ssh_key_ids(client, ssh_key or []), image=image, name=name,
            labels=read_labels(label or []), user_data=user_data.read_text() if user_data else None,
            restart_policy=restart,
            idempotency_key=idempotency_key,
        )  # fmt: skip
        if wait:
            show_one(session, wait_with_progress(session, client, made.allocation_id, {"active"}, timeout), ROWS)
        elif session.json:
            session.console.print_json(data=as_json(made))
        else:
            session.console.print(f"{made.allocation_id} is {made.status}; `berth alloc wait {made.allocation_id}`")


@command(app, "list")
def list_(
    session: Session,
    state: Annotated[str | None, typer.Option(help=f"one of {', '.join(STATES)}")] = None,
    label: Annotated[str | None, typer.Option(help="name=value")] = None,
    tenant: TenantOption = None,
) -> None:
    """List allocations; `--tenant all` lists those of all tenants (admin keys only)."""
    with session.client() as client:
        if tenant == "all":
            show_list(session, client.iterate_all_allocations(state=state, label=label), COLUMNS)
        elif tenant is not None or client.exchange.key == session.stack.admin_key:
            owner = session.tenant_id(client, tenant, existing=True)
            show_list(session, client.iterate_all_allocations(state=state, label=label, tenant_id=owner), COLUMNS)
        else:
            show_list(session, client.iterate_allocations(state=state, label=label), COLUMNS)


@command(app, "show")
def show(
    session: Session,
    allocation_id: AllocationId,
    timeline: Annotated[bool, typer.Option("--timeline", help="show every transition and event of it")] = False,
    tenant: TenantOption = None,
) -> None:
    """Show one allocation, or its timeline."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        if timeline:
            entries: list[TimelineEntry] = list(client.iterate_timeline(allocation_id, tenant_id=owner))
            show_list(session, entries, TIMELINE)
        else:
            show_one(session, client.get_allocation(allocation_id, tenant_id=owner), ROWS)


@command(app, "wait")
def wait_(
    session: Session,
    allocation_id: AllocationId,
    state: Annotated[list[str] | None, typer.Option(help="state to wait for, repeatable; default: active")] = None,
    timeout: TimeoutOption = 300.0,
    tenant: TenantOption = None,
) -> None:
    """Wait until an allocation reaches a state. Exit code 5 after the timeout, 1 if it ended in another final state."""
    wanted = state or ["active"]
    if unknown := [name for name in wanted if name not in STATES]:
        raise Refused(f"unknown state {unknown[0]}; the states are {', '.join(STATES)}", code="usage", exit_code=USAGE)
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        show_one(session, wait_with_progress(session, client, allocation_id, wanted, timeout, owner), ROWS)


@command(app, "update")
def update(
    session: Session,
    allocation_id: AllocationId,
    name: Annotated[str | None, typer.Option(help="the new name")] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="name=value, repeatable; together they replace all labels")
    ] = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="remove all labels")] = False,
    ends_at: Annotated[str | None, typer.Option(help="the new time of automatic release")] = None,
    no_end: Annotated[bool, typer.Option("--no-end", help="never release it automatically")] = False,
    tenant: TenantOption = None,
) -> None:
    """Change the name, the labels or the end of an allocation that is not released or failed."""
    if no_labels and label:
        raise Refused("give --label or --no-labels, not both", code="usage", exit_code=USAGE)
    if no_end and ends_at is not None:
        raise Refused("give --ends-at or --no-end, not both", code="usage", exit_code=USAGE)
    if name is None and not label and not no_labels and ends_at is None and not no_end:
        raise Refused("give --name, --label, --no-labels, --ends-at or --no-end", code="usage", exit_code=USAGE)
    labels = read_labels(label or []) if label or no_labels else None
    end = moment(ends_at, "--ends-at")
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        changed = client.update_allocation(
            allocation_id, name=name, labels=labels, ends_at=end, no_end=no_end, tenant_id=owner
        )
        show_one(session, changed, ROWS)


@command(app, "release")
def release(
    session: Session,
    allocation_id: AllocationId,
    wait: Annotated[bool, typer.Option("--wait", help="wait until its cleanup is proven")] = False,
    timeout: TimeoutOption = 300.0,
    tenant: TenantOption = None,
) -> None:
    """Release an allocation, or cancel it before it is active. Safe to repeat."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        released: Allocation = client.release_allocation(allocation_id, tenant_id=owner)
        if wait and released.status != "released":
            wanted = {"released", "release_failed"}
            released = wait_with_progress(session, client, allocation_id, wanted, timeout, owner)
        show_one(session, released, ROWS)
        if released.status == "release_failed":
            raise Refused("cleanup failed; release it again, or have an operator run `berth force-release`")


@command(app, "ssh", context_settings={"ignore_unknown_options": True})
def ssh(
    session: Session,
    allocation_id: AllocationId,
    remote: Annotated[list[str] | None, typer.Argument(help="a command after --; default: a shell")] = None,
    identity: Annotated[
        Path | None, typer.Option("--identity", "-i", help="private key file", exists=True, dir_okay=False)
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Log in to an active allocation; its host key is checked. The exit code is the remote command's."""
    with session.client() as client:
        allocation = client.get_allocation(allocation_id, tenant_id=session.tenant_id(client, tenant))
    server = _server(allocation)
    if server is None or allocation.status != "active":
        coming = allocation.status in ("requested", "provisioning")
        advice = f"; `berth alloc wait {allocation_id}`" if coming else ""
        raise Refused(f"{allocation_id} is {allocation.status}, so login is not possible{advice}", code="invalid_state")
    raise typer.Exit(ssh_login.log_in(server, identity, remote or []))


def force_release(
    session: Session,
    allocation_id: AllocationId,
    reason: Annotated[str, typer.Option(help="the reason, stored in the audit log")],
    wait: Annotated[bool, typer.Option("--wait", help="wait until its cleanup is proven")] = False,
    timeout: TimeoutOption = 300.0,
) -> None:
    """Release an allocation of any tenant; recorded in the audit log (admin keys only)."""
    with session.client() as client:
        released = client.force_release(allocation_id, reason=reason)
        if wait and released.status != "released":
            wanted = {"released", "release_failed"}
            released = wait_with_progress(session, client, allocation_id, wanted, timeout, released.tenant_id)
        show_one(session, released, ROWS)


def force_cleanup(
    session: Session,
    allocation_id: AllocationId,
    reason: Annotated[str, typer.Option(help="the reason and the evidence, stored in the audit log")],
    runtime_verified_absent: Annotated[
        bool,
        typer.Option("--runtime-verified-absent", help="state that you checked: nothing of it remains on its node"),
    ] = False,
) -> None:
    """Free the GPUs of an ended allocation on an operator's audited statement that nothing remains on them (admin keys only)."""
    if not runtime_verified_absent:
        raise Refused(
            "add --runtime-verified-absent to state that nothing of it remains on its node; "
            "while the node responds, use `berth force-release`, which proves it",
            code="usage",
            exit_code=USAGE,
        )
    with session.client() as client, approval_shown(session):
        show_one(session, client.force_cleanup(allocation_id, runtime_verified_absent=True, reason=reason), ROWS)
