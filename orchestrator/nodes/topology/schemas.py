"""Topologies of nodes as operators approve and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from node_agent.wire.topology import Topology
from orchestrator.http.documents import Waits
from orchestrator.http.fields import Request
from orchestrator.http.types.numbers import Count
from orchestrator.nodes.topology.rules import DriftCause


class ApproveTopology(Request):
    """The digest of the topology that was found last."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TopologyDifference(BaseModel):
    """One difference from the approved topology, and the slots that are out of service because of it."""

    cause: DriftCause
    subject: str
    approved: str | None
    found: str | None
    slots: list[Count]


class NodeTopology(BaseModel):
    """What a node is made of: found last, and approved. `waits`: a discovery is open."""

    node_id: UUID
    found: Topology | None
    found_digest: str | None
    found_at: datetime | None
    approved: Topology | None
    approved_digest: str | None
    approved_at: datetime | None
    approved_by: str | None
    differences: list[TopologyDifference]
    drifted_slots: list[Count]
    drifted_since: datetime | None
    failure: str | None = Field(description="Why the last discovery failed; null: it did not")
    next_at: datetime = Field(description="When the next discovery is due")
    waits: Waits | None
