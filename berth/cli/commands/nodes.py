"""`berth node`: the fleet (admin keys only)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, as_json, cell, print_aligned, show_list, show_one
from berth.cli.session import Session, command
from berth.cli.times import moment
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.client import Client, Node

app = typer.Typer(no_args_is_help=True, help="Nodes of the fleet (admin keys only).")

COLUMNS: list[Column] = [
    ("name", lambda n: n.name), ("region", lambda n: n.region), ("shape", lambda n: n.shape),
    ("gpus", lambda n: f"{n.slot_count} x {n.gpu_model}"), ("free", lambda n: n.free_slots),
    ("blocked", lambda n: n.cleanup_blocked_slots),
    ("state", lambda n: n.state), ("online", lambda n: n.online), ("last seen", lambda n: n.last_seen_at),
    ("agent", lambda n: n.agent_version), ("driver", lambda n: n.driver),
]  # fmt: skip
ROWS: list[Column] = [
    ("id", lambda n: n.id), *COLUMNS, ("slots in half 0", lambda n: n.half_slots), ("epoch", lambda n: n.epoch),
    ("hardware", lambda n: n.hardware_id), ("address", lambda n: n.address), ("enrolled", lambda n: n.enrolled_at),
    ("faults", lambda n: n.faults or None), ("drained", lambda n: n.drained),
    ("drain until", lambda n: n.drain and n.drain.deadline), ("at the deadline", lambda n: n.drain and n.drain.at_deadline),
    ("overdue since", lambda n: n.drain and n.drain.overdue_at), ("key set", lambda n: n.key_set_serial),
    ("key set refused", lambda n: n.key_set_refusal), ("attestation", lambda n: n.attestation),
    ("attestation set for", lambda n: n.attestation_from),
    ("TPM", lambda n: n.ek_sha256), ("attested", lambda n: n.attested_at),
]  # fmt: skip

Name = Annotated[str, typer.Argument(help="the node's name or id")]


class State(StrEnum):
    """What a node is shown as."""

    REGISTERED = "registered"
    ENROLLING = "enrolling"
    DISCOVERED = "discovered"
    ACTIVE = "active"
    MAINTENANCE = "maintenance"
    BURN_IN = "burn_in"
    QUARANTINED = "quarantined"
    CORDONED = "cordoned"
    DRAINING = "draining"
    RETIRED = "retired"


class AtDeadline(StrEnum):
    """What happens at the deadline of a drain to the allocations on the node."""

    STAY = "stay"
    RELEASE = "release"


class Shape(StrEnum):
    """How a node is rented out."""

    BAREMETAL = "baremetal"
    GPU_SLICE = "gpu_slice"


@command(app, "list")
def list_nodes(
    session: Session,
    state: Annotated[State | None, typer.Option(help="only nodes that are shown so")] = None,
    region: Annotated[str | None, typer.Option(help="only this region")] = None,
) -> None:
    """List the nodes."""
    with session.client() as client:
        found = client.iterate_nodes(state=None if state is None else state.value, region=region)
        show_list(session, found, COLUMNS)


@command(app, "show")
def show_node(session: Session, node: Name) -> None:
    """Show one node with its slots and their holders."""
    with session.client() as client:
        found = client.get_node(node)
    show_one(session, found, ROWS)
    if not session.json and found.slots:
        rows: list[tuple[list[str], str | None]] = [(["slot", "unit", "half", "state", "held by", "code"], "bold")]
        for slot in found.slots:
            state = f"{slot.state} ({slot.reason})" if slot.reason else slot.state
            rows.append(
                ([cell(v) for v in (slot.index, slot.unit, slot.numa_half, state, slot.holder, slot.code)], None)
            )
        print_aligned(session, rows)
    _show_remaining(session, found)


def _show_remaining(session: Session, node: Node) -> None:
    """What is still on a draining node."""
    if session.json or node.drain is None or not node.drain.remaining:
        return
    rows: list[tuple[list[str], str | None]] = [(["still on it", "state", "starts", "ends"], "bold")]
    for one in node.drain.remaining:
        rows.append(([cell(v) for v in (one.owner, one.state, one.starts_at, one.ends_at)], None))
    unlisted = node.drain.remaining_count - len(node.drain.remaining)
    if unlisted > 0:
        rows.append(([f"and {unlisted} more", "", "", ""], None))
    print_aligned(session, rows)


@command(app, "add")
def add_node(
    session: Session,
    name: Annotated[str, typer.Argument(help="lower-case letters, digits, dots and dashes; unique")],
    region: Annotated[str, typer.Option(help="the node's region")],
    gpu_model: Annotated[str, typer.Option(help="GPU model, as SKUs name it")],
    shape: Annotated[Shape, typer.Option(help="sold whole or in slices")],
    slots: Annotated[int | None, typer.Option(min=1, max=62, help="how many GPUs")] = None,
    slots_from_topology: Annotated[
        bool, typer.Option("--slots-from-topology", help="its slots are made when its topology is approved")
    ] = False,
    half_slots: Annotated[int | None, typer.Option(min=1, help="how many of them in the first NUMA half")] = None,
    address: Annotated[
        str | None, typer.Option(help="address at which operators reach the machine; Berth only shows it")
    ] = None,
    hardware_id: Annotated[str | None, typer.Option(help="bind the token to this hardware")] = None,
) -> None:
    """Register a node and create the one-time token with which its agent enrols. The token is shown once."""
    if (slots is not None) is slots_from_topology:
        raise Refused("give --slots or --slots-from-topology", code="usage", exit_code=USAGE)
    with session.client() as client:
        node = client.create_node(
            name=name, region=region, gpu_model=gpu_model, shape=shape.value, slot_count=slots, half_slots=half_slots,
            address=address, slots_from_topology=slots_from_topology,
        )  # fmt: skip
        _show_token(session, client, node, hardware_id)


@command(app, "update")
def update_node(
    session: Session,
    node: Name,
    address: Annotated[
        str | None, typer.Option(help="address at which operators reach the machine; Berth only shows it")
    ] = None,
    no_address: Annotated[bool, typer.Option("--no-address", help="remove the address")] = False,
    half_slots: Annotated[
        int | None, typer.Option(min=1, help="how many of its GPUs lie in the first NUMA half")
    ] = None,
) -> None:
    """Change the address of a node, or how its GPUs lie in NUMA halves; what is placed on it stays."""
    if no_address and address is not None:
        raise Refused("give --address or --no-address, not both", code="usage", exit_code=USAGE)
    if address is None and not no_address and half_slots is None:
        raise Refused("give --address, --no-address or --half-slots", code="usage", exit_code=USAGE)
    with session.client() as client:
        node_id = client.get_node(node).id
        changed = client.update_node(node_id, address=address, no_address=no_address, half_slots=half_slots)
        show_one(session, changed, ROWS)


@command(app, "token")
def new_token(
    session: Session,
    node: Name,
    hardware_id: Annotated[str | None, typer.Option(help="bind the token to this hardware")] = None,
) -> None:
    """Create another one-time enrolment token for a node, for example after its certificate expired."""
    with session.client() as client:
        _show_token(session, client, client.get_node(node), hardware_id)


def _show_token(session: Session, client: Client, node: Node, hardware_id: str | None) -> None:
    made = client.create_enrolment_token(node.id, hardware_id=hardware_id)
    if session.json:
        content: JsonObject = {"node": as_json(node), "enrolment": as_json(made)}
        session.console.print_json(data=content)
        return
    session.console.print(f"node {node.name} ({node.id}) is {node.state}", markup=False)
    session.console.print(f"enrolment token, until {cell(made.expires_at)}: {made.token}", markup=False, soft_wrap=True)
    session.console.print(
        "store it on the node in the file that BERTH_ENROLMENT_TOKEN_FILE names and start `python -m node_agent`",
        style="dim", soft_wrap=True,
    )  # fmt: skip


@command(app, "cordon")
def cordon(session: Session, node: Name) -> None:
    """Stop placing allocations on a node."""
    with session.client() as client:
        show_one(session, client.cordon_node(client.get_node(node).id), ROWS)


@command(app, "uncordon")
def uncordon(session: Session, node: Name) -> None:
    """Allow placement on a node again."""
    with session.client() as client:
        show_one(session, client.uncordon_node(client.get_node(node).id), ROWS)


@command(app, "drain")
def drain(
    session: Session,
    node: Name,
    deadline: Annotated[str | None, typer.Option(help="RFC 3339 with its zone; tenants are notified of it")] = None,
    at_deadline: Annotated[
        AtDeadline | None,
        typer.Option(help="stay (default): allocations stay; release: they are released (role admin)"),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="shown to the tenants that are notified")] = None,
) -> None:
    """Empty a node: nothing new is placed, reservations of a SKU are moved, tenants are notified; what runs stays."""
    with session.client() as client:
        drained = client.drain_node(
            client.get_node(node).id, deadline=moment(deadline, "--deadline"), reason=reason,
            at_deadline=None if at_deadline is None else at_deadline.value,
        )  # fmt: skip
        show_one(session, drained, ROWS)
    _show_remaining(session, drained)


@command(app, "retire")
def retire(
    session: Session,
    node: Name,
    reason: Annotated[str, typer.Option(help="the reason, stored in the audit log")],
) -> None:
    """Remove a node from the fleet permanently; its history stays. Refused while a GPU of it is held."""
    with session.client() as client:
        show_one(session, client.retire_node(client.get_node(node).id, reason=reason), ROWS)
