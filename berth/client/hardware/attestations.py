"""Attestations on demand."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.errors import Refused
from berth.client.models import Answer, Waits
from berth.process.json_objects import JsonObject


class AttestationUnavailable(Refused):
    """The node has proven no TPM, or its agent is of an earlier version; `extra["reason"]` is one word."""

    codes = ("attestation_unavailable",)


class Attestation(Answer):
    """An attestation; `verdict` None: it is open. `evidence`: the answer, of the newest alone."""

    id: UUID
    node_id: UUID
    nonce: str
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None = None
    deploy_run_id: UUID | None = None
    ended_at: datetime | None = None
    verdict: str | None = None
    code: str | None = None
    detail: str
    pcrs: list[str] | None = None
    compared: list[str]
    evidence: JsonObject | None = None
    waits: Waits | None = None


class AcceptedPcrs(Answer):
    """The PCRs that attestations of a node are compared with."""

    pcrs: list[str]
    attestation_id: UUID
    accepted_at: datetime
    accepted_by: str


class NodeAttestations(Answer):
    """The attestations of a node that are kept, newest first."""

    node_id: UUID
    accepted: AcceptedPcrs | None = None
    newest: Attestation | None = None
    earlier: list[Attestation]
