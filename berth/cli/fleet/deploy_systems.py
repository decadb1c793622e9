"""`berth node deploy-system`, `inspect`, `wipe`, `run`, `deploy-tasks`: deploy systems of bare-metal machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TextIO
from uuid import UUID

import typer

from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

MEDIUM_BYTES = 8_192
SHOWN: list[Column] = [
    ("id", lambda d: d.id), ("node", lambda d: d.node_id), ("deploy epoch", lambda d: d.deploy_epoch),
    ("state", lambda d: d.state), ("SMBIOS UUID", lambda d: d.smbios_uuid), ("MACs", lambda d: d.macs),
    ("TPM required", lambda d: d.tpm_required), ("token until", lambda d: d.expires_at), ("used at", lambda d: d.used_at),
    ("certificate until", lambda d: d.not_after), ("started at", lambda d: d.hello_at), ("refused", lambda d: d.refusal),
]  # fmt: skip
TASK: list[Column] = [
    ("id", lambda t: t.id), ("type", lambda t: t.type), ("deploy epoch", lambda t: t.deploy_epoch),
    ("outcome", lambda t: t.outcome or "open"), ("requested at", lambda t: t.requested_at), ("by", lambda t: t.requested_by),
    ("issued at", lambda t: t.issued_at), ("ended at", lambda t: t.ended_at), ("failure", lambda t: t.failure),
]  # fmt: skip


RUN: list[Column] = [
    ("id", lambda r: r.id), ("node", lambda r: r.node_id), ("kind", lambda r: r.kind), ("step", lambda r: r.step),
    ("outcome", lambda r: r.outcome or "open"), ("failure", lambda r: r.failure), ("SMBIOS UUID", lambda r: r.smbios_uuid),
    ("port", lambda r: r.network["mac"]), ("address", lambda r: r.network["address"]),
    ("root disk", lambda r: ", ".join(f"{name} {value}" for name, value in (r.root_disk or {}).items() if value is not None)),
    ("allocation", lambda r: r.allocation_id),
    ("deploy epoch", lambda r: r.deploy_epoch), ("requested at", lambda r: r.requested_at), ("by", lambda r: r.requested_by),
    ("stop requested at", lambda r: r.stop_requested_at), ("stopped by", lambda r: r.stop_requested_by),
    ("wipe proven", lambda r: r.wipe and r.wipe.proven),
    ("found", lambda r: "; ".join(f"{one.code}: {one.detail}" for one in r.findings)),
    ("next step", lambda r: "; ".join(dict.fromkeys(one.next_step for one in r.findings if one.next_step))),
    ("ended at", lambda r: r.ended_at), ("waits for", lambda r: r.waits and r.waits.for_),
    ("until", lambda r: r.waits and r.waits.until),
]  # fmt: skip


def deploy_system(
    session: Session,
    node: Name,
    mac: Annotated[str | None, typer.Option(help="network port of the deploy system, in lower case")] = None,
    address: Annotated[str | None, typer.Option(help="its address with the prefix length: 192.0.2.7/24")] = None,
    medium_file: Annotated[
        Path | None, typer.Option("--medium", help="new file for the configuration of the medium; it holds the token")
    ] = None,
    gateway: Annotated[str | None, typer.Option(help="address of the router")] = None,
    vlan: Annotated[int | None, typer.Option(min=1, max=4_094, help="VLAN of the port")] = None,
    smbios_uuid: Annotated[
        UUID | None, typer.Option(help="of the machine, as its BMC reports it; default: the inspected one")
    ] = None,
    require_tpm: Annotated[
        bool, typer.Option("--require-tpm", help="refuse the enrolment without a proof of the TPM")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="end the permission at once, with its certificate and tasks")
    ] = False,
) -> None:
    """Permit one start of a deploy system and write its medium's configuration; without options, show the newest one."""
    permits = mac is not None or address is not None or medium_file is not None
    if revoke and permits:
        raise typer.BadParameter("give --revoke alone")
    with session.client() as client:
        node_id = client.get_node(node).id
        if revoke:
            client.revoke_deploy_system(node_id)
            show_one(session, client.get_deploy_system(node_id), SHOWN)
            return
        if not permits:
            show_one(session, client.get_deploy_system(node_id), SHOWN)
            return
        if mac is None or address is None or medium_file is None:
            raise typer.BadParameter("give --mac, --address and --medium together")
        network = {"mac": mac, "address": address, "gateway": gateway, "vlan": vlan}
        with _new_file(medium_file) as file:
            made = client.permit_deploy_system(
                node_id, network={name: value for name, value in network.items() if value is not None},
                smbios_uuid=smbios_uuid, require_tpm=require_tpm or None,
            )  # fmt: skip
            file.write(made.medium.ljust(MEDIUM_BYTES - 1) + "\n")
        show_one(session, made, SHOWN)


@contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """A new file for its owner alone, which is removed if the block fails."""
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be made: {error.strerror}") from error
    try:
        with file:
            yield file
    except BaseException:
        path.unlink()
        raise


def inspect_machine(
    session: Session,
    node: Name,
    mac: Annotated[str | None, typer.Option(help="network port of the deploy system, in lower case")] = None,
    address: Annotated[str | None, typer.Option(help="its address with the prefix length: 192.0.2.7/24")] = None,
    gateway: Annotated[str | None, typer.Option(help="address of the router")] = None,
    vlan: Annotated[int | None, typer.Option(min=1, max=4_094, help="VLAN of the port")] = None,
    smbios_uuid: Annotated[
        UUID | None, typer.Option(help="of the machine; default: the inspected one, else as its BMC reports it")
    ] = None,
    require_tpm: Annotated[
        bool, typer.Option("--require-tpm", help="refuse the enrolment without a proof of the TPM")
    ] = False,
    root_serial: Annotated[
        str | None, typer.Option(help="serial of the disk that images are written to, from now on")
    ] = None,
    root_kind: Annotated[
        Literal["nvme", "scsi", "virtio"] | None, typer.Option(help="kind of that disk; scsi: SATA, SAS and USB")
    ] = None,
    root_bytes_min: Annotated[int | None, typer.Option(min=1, help="what that disk holds at least")] = None,
    root_any: Annotated[
        bool, typer.Option("--root-any", help="images are written to the smallest disk that holds them, from now on")
    ] = False,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="request it of a deploy system that you have permitted and boot yourself")
    ] = False,
    stay_on: Annotated[
        bool, typer.Option("--stay-on", help="with --by-hand: leave the deploy system running after the report")
    ] = False,
) -> None:
    """Have the site start a deploy system that inspects the node's machine, and end it; it writes nothing on it.

    Without --mac and --address the network of the newest run is used, without --root-... its root disk. `berth node run` shows
    how far it is.
    """
    named = mac is not None or address is not None or gateway is not None or vlan is not None
    root_disk = _root_disk(root_serial, root_kind, root_bytes_min, root_any)
    if by_hand and (named or smbios_uuid is not None or require_tpm or root_disk is not None):
        raise typer.BadParameter("give --by-hand without a network or machine: its permission has them")
    if stay_on and not by_hand:
        raise typer.BadParameter("give --stay-on with --by-hand alone: a run ends its deploy system")
    network = _network(mac, address, gateway, vlan)
    with session.client() as client:
        node_id = client.get_node(node).id
        if by_hand:
            show_one(session, client.inspect_machine(node_id, power_off=False if stay_on else None), TASK)
            return
        run = client.run_deploy_system(
            node_id, smbios_uuid=smbios_uuid, require_tpm=require_tpm or None, network=network, root_disk=root_disk
        )
        show_one(session, run, RUN)


def wipe_machine(
    session: Session,
    node: Name,
    yes: Annotated[bool, typer.Option("--yes", help="erase every disk of the machine")] = False,
    mac: Annotated[str | None, typer.Option(help="network port of the deploy system, in lower case")] = None,
    address: Annotated[str | None, typer.Option(help="its address with the prefix length: 192.0.2.7/24")] = None,
    gateway: Annotated[str | None, typer.Option(help="address of the router")] = None,
    vlan: Annotated[int | None, typer.Option(min=1, max=4_094, help="VLAN of the port")] = None,
    require_tpm: Annotated[
        bool, typer.Option("--require-tpm", help="refuse the enrolment without a proof of the TPM")
    ] = False,
) -> None:
    """Have the site start a deploy system that erases every disk of the node's inspected machine, and end it.

    Without --mac and --address the network of the newest run is used. `berth node run` shows how far it is, and its proof.
    """
    if not yes:
        raise typer.BadParameter("this erases every disk of the machine: give --yes")
    network = _network(mac, address, gateway, vlan)
    with session.client() as client:
        run = client.run_deploy_system(
            client.get_node(node).id, kind="wipe", network=network, require_tpm=require_tpm or None
        )
        show_one(session, run, RUN)


def _network(mac: str | None, address: str | None, gateway: str | None, vlan: int | None) -> JsonObject | None:
    """The network of the deploy system; None without options."""
    network = {"mac": mac, "address": address, "gateway": gateway, "vlan": vlan}
    named = {name: value for name, value in network.items() if value is not None}
    if named and (mac is None or address is None):
        raise typer.BadParameter("give --mac and --address together")
    return named or None


def _root_disk(serial: str | None, kind: str | None, bytes_min: int | None, is_any: bool) -> JsonObject | None:
    """What the root disk must be; None without options."""
    hint = {"serial": serial, "kind": kind, "size_bytes_min": bytes_min}
    given = {name: value for name, value in hint.items() if value is not None}
    if is_any and given:
        raise typer.BadParameter("give --root-any alone, or what the root disk must be")
    return given if given or is_any else None


def show_run(
    session: Session,
    node: Name,
    stop: Annotated[
        bool, typer.Option("--stop", help="stop it: the machine is switched off and the medium taken away")
    ] = False,
) -> None:
    """Show the newest run of a deploy system on a node's machine, or stop it."""
    with session.client() as client:
        node_id = client.get_node(node).id
        show_one(session, client.stop_deploy_run(node_id) if stop else client.get_deploy_run(node_id), RUN)


def list_deploy_tasks(session: Session, node: Name) -> None:
    """List the tasks of a node's deploy systems that are kept, newest first."""
    with session.client() as client:
        show_list(session, client.iterate_deploy_tasks(client.get_node(node).id), TASK, empty="no tasks")
