"""`berth node port` and `berth site segments`: the switch ports of machines, and the VLANs that they carry (admin keys only)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.commands.nodes import Name
from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_one
from berth.cli.session import Session, command
from berth.cli.sites.sites import SiteName

if TYPE_CHECKING:
    from berth.client import NodePorts, SiteSegments

app = typer.Typer(no_args_is_help=True, help="Switch ports of machines (admin keys only).")
segments_app = typer.Typer(no_args_is_help=True, help="VLANs of sites (admin keys only).")


def _ports(found: NodePorts) -> str:
    heard = {True: "LLDP agrees", False: "LLDP disagrees", None: "no LLDP"}
    return ", ".join(f"{one.switch}:{one.port} {one.mac} ({heard[one.agrees]})" for one in found.ports)


def _found(found: NodePorts) -> str | None:
    if found.found is None:
        return None
    return ", ".join(
        f"{one.switch}:{one.port} {'shut' if one.is_shut else one.segments} ({one.driver})" for one in found.found
    )


ROWS: list[Column] = [
    ("node", lambda p: p.node_id), ("ports", _ports), ("isolation", lambda p: p.isolation), ("place", lambda p: p.place),
    ("vlan", lambda p: p.vlan), ("changed at", lambda p: p.changed_at), ("proven at", lambda p: p.proven_at),
    ("read", _found), ("task", lambda p: p.task and p.task.kind), ("outcome", lambda p: p.task and (p.task.outcome or "open")),
    ("failure", lambda p: p.task and p.task.failure), ("waits for", lambda p: p.task and p.task.waits and p.task.waits.for_),
    ("until", lambda p: p.task and p.task.waits and p.task.waits.until),
]  # fmt: skip


def _leased(found: SiteSegments) -> str:
    return ", ".join(
        f"{one.vlan}: tenant {one.tenant_id}, "
        + (f"{one.machines} machines" if one.free_at is None else f"free at {one.free_at}")
        for one in found.leased
    )


SEGMENTS: list[Column] = [
    ("site", lambda s: s.site_id), ("provisioning VLAN", lambda s: s.provisioning_vlan),
    ("tenant VLANs", lambda s: f"{s.first_tenant_vlan} to {s.last_tenant_vlan}"),
    ("quarantine seconds", lambda s: s.quarantine_seconds), ("changed at", lambda s: s.changed_at), ("leased", _leased),
]  # fmt: skip


@command(app, "show")
def show(session: Session, node: Name) -> None:
    """Show the switch ports of a node's machine, where they are, and what the inspection heard there."""
    with session.client() as client:
        show_one(session, client.get_node_ports(client.get_node(node).id), ROWS)


@command(app, "set")
def set_ports(
    session: Session, node: Name,
    switch: Annotated[list[str], typer.Option(help="name of the switch, as the agents of the site call it")],
    port: Annotated[list[str], typer.Option(help="port, as the switch calls it")],
    mac: Annotated[list[str], typer.Option(help="MAC of the machine's network port")],
) -> None:  # fmt: skip
    """Set every switch port of a node's machine: repeat the three options for each. From then on its runs move them."""
    from berth.client import SwitchPort

    if not len(switch) == len(port) == len(mac):
        raise Refused("give --switch, --port and --mac once for each port", code="usage", exit_code=USAGE)
    ports = [SwitchPort(one, of, address.lower()) for one, of, address in zip(switch, port, mac, strict=True)]
    with session.client() as client:
        show_one(session, client.put_node_ports(client.get_node(node).id, ports=ports), ROWS)


@command(app, "remove")
def remove(session: Session, node: Name) -> None:
    """Forget the switch ports of a node's machine: its runs move nothing any more."""
    with session.client() as client:
        show_one(session, client.put_node_ports(client.get_node(node).id, ports=[]), ROWS)


class Target(StrEnum):
    """`check` moves nothing."""

    PROVISIONING = "provisioning"
    TENANT = "tenant"
    SHUT = "shut"
    CHECK = "check"


@command(app, "move")
def move(session: Session, node: Name, to: Annotated[Target, typer.Argument(help="where to")]) -> None:
    """Have the site's agent move a machine's switch ports and read them back; `berth node port show` has the result.

    `tenant` puts a tenant's machine back into the VLAN of its tenant; `check` compares the ports and moves nothing.
    """
    with session.client() as client:
        show_one(session, client.move_node_ports(client.get_node(node).id, to=to.value), ROWS)


@command(segments_app, "show")
def show_segments(session: Session, site: SiteName) -> None:
    """Show the VLANs of a site, and which of them tenants have."""
    with session.client() as client:
        show_one(session, client.get_site_segments(client.get_site(site).id), SEGMENTS)


@command(segments_app, "set")
def set_segments(
    session: Session, site: SiteName,
    provisioning: Annotated[int, typer.Option(help="VLAN that machines are provisioned in")],
    first_tenant: Annotated[int, typer.Option(help="first VLAN that is leased to tenants")],
    last_tenant: Annotated[int, typer.Option(help="last VLAN that is leased to tenants")],
    quarantine_seconds: Annotated[
        int | None, typer.Option(help="how long no other tenant has a VLAN that was left; default: 600")
    ] = None,
) -> None:  # fmt: skip
    """Set the VLANs of a site."""
    with session.client() as client:
        done = client.put_site_segments(
            client.get_site(site).id, provisioning_vlan=provisioning, first_tenant_vlan=first_tenant,
            last_tenant_vlan=last_tenant, quarantine_seconds=quarantine_seconds,
        )  # fmt: skip
        show_one(session, done, SEGMENTS)
