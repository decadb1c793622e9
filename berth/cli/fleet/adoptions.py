"""`berth node adopt-machine`, `adoption`: machines that run already, recorded as allocations of their tenants."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from berth.cli.commands.allocations import read_labels
from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, show_one
from berth.cli.session import Session
from berth.cli.times import moment

SHOWN: list[Column] = [
    ("node", lambda a: a.node_id), ("allocation", lambda a: a.allocation.allocation_id),
    ("tenant", lambda a: a.allocation.tenant_id), ("status", lambda a: a.allocation.status),
    ("SKU", lambda a: a.allocation.sku), ("image", lambda a: a.allocation.image),
    ("host", lambda a: a.allocation.connection and a.allocation.connection.host),
    ("manufacturer", lambda a: a.machine["manufacturer"]), ("model", lambda a: a.machine["model"]),
    ("serial", lambda a: a.machine["serial"]), ("SMBIOS UUID", lambda a: a.smbios_uuid), ("MACs", lambda a: a.macs),
    ("looked at", lambda a: a.machine["looked_at"]), ("not seen", lambda a: ", ".join(a.gaps)),
    ("inspected", lambda a: a.inspected), ("adopted at", lambda a: a.adopted_at), ("by", lambda a: a.adopted_by),
]  # fmt: skip


def adopt_machine(
    session: Session,
    node: Name,
    tenant: Annotated[UUID, typer.Option(help="id of the tenant whose system runs on it")],
    sku: Annotated[str, typer.Option(help="a bare-metal SKU for all GPUs of the node")],
    ssh_key: Annotated[list[UUID], typer.Option("--ssh-key", help="id of a key of the tenant, repeatable")],
    host: Annotated[str, typer.Option(help="name or address at which the tenant logs in")],
    user: Annotated[str, typer.Option(help="login name of the tenant")],
    host_key: Annotated[str, typer.Option(help="public host key of its SSH server: 'ssh-ed25519 AAAA...'")],
    mac: Annotated[str, typer.Option(help="network port of the deploy system of its release, in lower case")],
    address: Annotated[str, typer.Option(help="its address with the prefix length: 192.0.2.7/24")],
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="port of its SSH server; default: 22")] = None,
    gateway: Annotated[str | None, typer.Option(help="address of the router")] = None,
    vlan: Annotated[int | None, typer.Option(min=1, max=4_094, help="VLAN of the port")] = None,
    image: Annotated[str | None, typer.Option(help="what a rebuild deploys; default: that of the SKU")] = None,
    name: Annotated[str | None, typer.Option(help="a name for people; need not be unique")] = None,
    label: Annotated[list[str] | None, typer.Option(help="name=value, repeatable")] = None,
    ends_at: Annotated[str | None, typer.Option(help="time of automatic release; default: none")] = None,
    smbios_uuid: Annotated[UUID | None, typer.Option(help="refuse the machine if its BMC reports another one")] = None,
    serial: Annotated[str | None, typer.Option(help="refuse the machine if its BMC reports another one")] = None,
    require_tpm: Annotated[
        bool, typer.Option("--require-tpm", help="refuse its deploy systems without a proof of the TPM")
    ] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="repeat an earlier request with its key")] = None,
) -> None:  # fmt: skip
    """Record a machine that runs already as an active allocation of its tenant; nothing is commanded or written on it.

    `berth node bmc look` must have described it within 15 minutes.
    """
    network = {"mac": mac, "address": address, "gateway": gateway, "vlan": vlan}
    connection = {"host": host, "port": port, "user": user, "host_key": host_key}
    with session.client() as client:
        adopted = client.adopt_machine(
            client.get_node(node).id, tenant_id=tenant, sku=sku, ssh_key_ids=ssh_key, image=image, name=name,
            connection={key: value for key, value in connection.items() if value is not None},
            network={key: value for key, value in network.items() if value is not None},
            labels=read_labels(label or []) or None, ends_at=moment(ends_at, "--ends-at"), smbios_uuid=smbios_uuid,
            serial=serial, require_tpm=require_tpm or None, idempotency_key=idempotency_key,
        )  # fmt: skip
        show_one(session, adopted, SHOWN)


def adoption(session: Session, node: Name) -> None:
    """Show the adoption of the machine that is rented on a node: what was seen of it, and what was not."""
    with session.client() as client:
        show_one(session, client.get_adoption(client.get_node(node).id), SHOWN)
