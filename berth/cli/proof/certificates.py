"""`berth certificate`: wipe certificates of released allocations."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from pydantic import BaseModel

from berth.cli.endings import Refused
from berth.cli.printing import Column, show_one
from berth.cli.session import Session, command

if TYPE_CHECKING:
    from node_agent.key_set import KeySetEnvelope

app = typer.Typer(no_args_is_help=True, help="Wipe certificates: what nodes signed about the wipe of allocations.")


class Verified(BaseModel):
    """A certificate whose every signature holds."""

    allocation_id: UUID
    node_id: UUID
    verdict: str
    level: str | None
    devices: list[str]
    ended_at: datetime
    agent: str
    number: int
    sha256: str
    previous_sha256: str | None
    key_set_serial: int
    machine: list[str] | None = None


SHOWN: list[Column] = [
    ("allocation", lambda v: v.allocation_id), ("node", lambda v: v.node_id), ("verdict", lambda v: v.verdict),
    ("level", lambda v: v.level), ("devices", lambda v: v.devices), ("machine", lambda v: v.machine),
    ("ended", lambda v: v.ended_at), ("agent", lambda v: v.agent), ("number", lambda v: v.number), ("sha256", lambda v: v.sha256),
    ("previous", lambda v: v.previous_sha256), ("key set", lambda v: v.key_set_serial),
]  # fmt: skip


@command(app, "show")
def show(
    session: Session,
    allocation_id: Annotated[UUID, typer.Argument(help="the allocation's id")],
    out: Annotated[Path | None, typer.Option(help="write the certificate to this file, which must not exist")] = None,
    tenant: Annotated[str | None, typer.Option(help="name or id, with an admin key")] = None,
) -> None:
    """Print the wipe certificate of a released allocation as JSON, or write it to a file."""
    with session.client() as client:
        found = client.get_wipe_certificate(allocation_id, tenant_id=session.tenant_id(client, tenant))
    document = found.model_dump_json(indent=2) + "\n"
    if out is None:
        session.console.out(document, end="", highlight=False)
        return
    try:
        with out.open("x") as file:
            file.write(document)
    except OSError as error:
        raise Refused(f"{out} cannot be written: {error.strerror}", code="file_not_written") from error


@command(app, "verify")
def verify(
    session: Session,
    file: Annotated[Path, typer.Argument(help="the certificate, as `berth certificate show` writes it")],
    allocation: Annotated[UUID, typer.Option(help="the allocation that the certificate must be about")],
    root_keys: Annotated[Path, typer.Option(help="PEM public keys of the operator's root")],
    key_set: Annotated[
        Path | None, typer.Option(help="a key set of the operator to use instead of the certificate's own")
    ] = None,
) -> None:
    """Verify a wipe certificate without any server. Exit code 1: it proves nothing.

    Every signature is verified from the root's key down: the key set, the node's certificate, the node's statement, the
    countersignature. The statement says what was done to each device.
    """
    from node_agent.key_set import read_public_keys
    from node_agent.key_set import root_keys as by_name
    from orchestrator.wipes.certificate import CertificateRefused, machine_claims, read_certificate, verify_certificate

    try:
        roots = by_name(read_public_keys(root_keys))
    except (OSError, ValueError) as error:
        raise Refused(
            f"{root_keys}: {getattr(error, 'strerror', None) or error}", code="root_keys_unreadable"
        ) from error
    try:
        certificate = read_certificate(_content(file))
        replacing = None if key_set is None else _key_set(key_set)
        found = verify_certificate(certificate, allocation, roots, replacing)
    except CertificateRefused as refused:
        raise Refused(f"{file}: {refused.detail}", code=f"certificate_{refused.reason}") from refused
    show_one(
        session,
        Verified(
            **found.predicate.model_dump(include={"allocation_id", "node_id", "verdict", "level", "ended_at"}),
            devices=[f"{device.device} ({device.method}, {device.level})" for device in found.predicate.devices],
            agent=f"{found.predicate.agent.version} {found.predicate.agent.sha256}",
            **found.link.model_dump(include={"number", "previous_sha256"}),
            sha256=found.sha256,
            key_set_serial=found.key_set_serial,
            machine=machine_claims(found),
        ),
        SHOWN,
    )


def _content(file: Path) -> bytes:
    from orchestrator.wipes.certificate import CERTIFICATE_BYTES_MAX

    try:
        with file.open("rb") as opened:
            return opened.read(CERTIFICATE_BYTES_MAX + 1)
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", code="file_unreadable") from error


def _key_set(file: Path) -> KeySetEnvelope:
    from node_agent.key_set import KeySetRefused, read_envelope
    from orchestrator.wipes.certificate import CertificateRefused

    try:
        return read_envelope(_content(file))
    except KeySetRefused as refused:
        raise CertificateRefused("key_set_untrusted", f"{file}: {refused}") from refused
