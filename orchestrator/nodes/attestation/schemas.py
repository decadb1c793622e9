"""Pools and attestations on demand as operators see them, and the attestation policy of nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Path
from pydantic import BaseModel, Field

from node_agent.wire.attestations import AttestationReport
from orchestrator.catalogue.shapes import Shape
from orchestrator.http.documents import Waits
from orchestrator.http.fields import Request
from orchestrator.nodes.attestation.rules import Verdict
from orchestrator.nodes.states import AttestationPolicy

POOL_ID_MAX = 2**31 - 1
PoolId = Annotated[int, Path(ge=1, le=POOL_ID_MAX)]


class SetPoolAttestation(Request):
    """Whether the nodes of a pool prove that they have their TPMs; a node with its own policy keeps that."""

    policy: Annotated[AttestationPolicy, Field(strict=False)]


class Pool(BaseModel):
    """The nodes of a region with the same GPUs in the same shape."""

    id: Annotated[int, Field(ge=1, le=POOL_ID_MAX)]
    region: str
    gpu_model: str
    shape: Shape
    attestation: AttestationPolicy = Field(description="Of its nodes without their own policy")


class AcceptAttestation(Request):
    """The attestation whose PCRs later ones of the node are compared with."""

    attestation_id: Annotated[UUID, Field(strict=False)]


class Attestation(BaseModel):
    """An attestation on demand."""

    id: UUID
    node_id: UUID
    nonce: str = Field(description="hex; what the quote must name")
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None = Field(description="when a task was signed for the node's agent")
    deploy_run_id: UUID | None = Field(description="the run whose deploy system answers; null: the node's agent does")
    ended_at: datetime | None
    verdict: Verdict | None = Field(description="null: it is open")
    code: str | None = Field(description="why it failed; null: it has not")
    detail: str
    pcrs: list[str] | None = Field(
        description="PCRs 0 to 7 of SHA-256 that the bound key has signed for this nonce, hex"
    )
    compared: list[str] = Field(description="with what the answer was compared: `pcrs`, `inspection`, `firmware_list`")
    evidence: AttestationReport | None = Field(description="the answer; of the newest attestation alone")
    waits: Waits | None


class AcceptedPcrs(BaseModel):
    """The PCRs that attestations of a node are compared with."""

    pcrs: list[str]
    attestation_id: UUID
    accepted_at: datetime
    accepted_by: str


class NodeAttestations(BaseModel):
    """The attestations of a node that are kept."""

    node_id: UUID
    accepted: AcceptedPcrs | None = Field(description="null: an operator has accepted none, and PCRs are not compared")
    newest: Attestation | None
    earlier: list[Attestation] = Field(description="newest first, without their evidence")
