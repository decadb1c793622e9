"""`berth node attest`, `attestation`: attestations on demand, and the policy of a node's TPM."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from berth.cli.commands.nodes import ROWS, Name
from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session

SHOWN: list[Column] = [
    ("id", lambda a: a.id), ("node", lambda a: a.node_id), ("verdict", lambda a: a.verdict or "open"), ("code", lambda a: a.code),
    ("detail", lambda a: a.detail or None), ("compared", lambda a: ", ".join(a.compared) or None),
    ("requested at", lambda a: a.requested_at), ("requested by", lambda a: a.requested_by), ("run", lambda a: a.deploy_run_id),
    ("ended at", lambda a: a.ended_at), ("waits for", lambda a: None if a.waits is None else a.waits.for_),
    ("until", lambda a: None if a.waits is None else a.waits.until),
]  # fmt: skip


class Policy(StrEnum):
    """Whether a node proves that it has its TPM; `pool`: as its pool does."""

    OFF = "off"
    OFFERED = "offered"
    REQUIRED = "required"
    POOL = "pool"


def attest(session: Session, node: Name) -> None:
    """Have the TPM of a node quote a new nonce; a machine without an agent starts its deploy system for it."""
    with session.client() as client:
        show_one(session, client.attest_node(client.get_node(node).id), SHOWN)


def attestation(
    session: Session,
    node: Name,
    policy: Annotated[
        Policy | None, typer.Option(help="whether the node proves that it has its TPM for a certificate")
    ] = None,
    ek_sha256: Annotated[str | None, typer.Option(help="register a TPM: SHA-256 of its endorsement key")] = None,
    ek_certificate: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="register a TPM: its EK certificate (PEM)")
    ] = None,
    forget_tpm: Annotated[
        bool, typer.Option("--forget-tpm", help="forget the TPM; the next enrolment pins one")
    ] = False,
    accept: Annotated[
        UUID | None, typer.Option(metavar="ID", help="compare later attestations with the PCRs of this one")
    ] = None,
) -> None:
    """Show the attestations of a node; accept the PCRs of one; or say whether it must prove its TPM, and which TPM that is."""
    if policy is None and (ek_sha256 or ek_certificate or forget_tpm):
        raise Refused("a TPM is registered or forgotten with a --policy", code="usage", exit_code=USAGE)
    if policy is not None and accept is not None:
        raise Refused("--accept and --policy are two requests", code="usage", exit_code=USAGE)
    with session.client() as client:
        found = client.get_node(node)
        if policy is not None:
            certificate = None if ek_certificate is None else ek_certificate.read_text()
            changed = client.set_node_attestation(
                found.id, policy=policy.value, ek_sha256=ek_sha256, ek_certificate=certificate, forget_tpm=forget_tpm
            )
            show_one(session, changed, ROWS)
            return
        known = (
            client.get_node_attestations(found.id) if accept is None else client.accept_attestation(found.id, accept)
        )
        kept = [*([] if known.newest is None else [known.newest]), *known.earlier]
        accepted = None if known.accepted is None else known.accepted.attestation_id
        columns = [*SHOWN, ("PCRs", lambda a: _pcrs(a.id, accepted, a.pcrs))]
        show_list(session, kept, columns, empty="no attestations")


def _pcrs(attestation_id: UUID, accepted: UUID | None, pcrs: list[str] | None) -> str | None:
    if attestation_id == accepted:
        return "accepted"
    return None if pcrs is None else "proven"
