"""`berth node deploy-system`, `inspect`, `deploy-tasks`: deploy systems of bare-metal machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO
from uuid import UUID

import typer

from berth.cli.commands.nodes import Name
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session

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
    stay_on: Annotated[
        bool, typer.Option("--stay-on", help="leave the deploy system running after the report")
    ] = False,
) -> None:
    """Have the node's deploy system inspect its machine; it writes nothing on it."""
    with session.client() as client:
        task = client.inspect_machine(client.get_node(node).id, power_off=False if stay_on else None)
        show_one(session, task, TASK)


def list_deploy_tasks(session: Session, node: Name) -> None:
    """List the tasks of a node's deploy systems that are kept, newest first."""
    with session.client() as client:
        show_list(session, client.iterate_deploy_tasks(client.get_node(node).id), TASK, empty="no tasks")
