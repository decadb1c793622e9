"""Pools as operators see them, and the attestation policy of their nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field

from orchestrator.catalogue.shapes import Shape
from orchestrator.http.fields import Request
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
