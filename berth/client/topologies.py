"""Topologies of nodes and the errors about them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.errors import Refused
from berth.client.models import Answer, Waits
from berth.process.json_objects import JsonObject


class TopologyDifference(Answer):
    """One difference from the approved topology, and the slots that are out of service because of it."""

    cause: str
    subject: str
    approved: str | None = None
    found: str | None = None
    slots: list[int]


class NodeTopology(Answer):
    """What a node is made of: found last, and approved. `waits`: a discovery is open."""

    node_id: UUID
    found: JsonObject | None = None
    found_digest: str | None = None
    found_at: datetime | None = None
    approved: JsonObject | None = None
    approved_digest: str | None = None
    approved_at: datetime | None = None
    approved_by: str | None = None
    differences: list[TopologyDifference]
    drifted_slots: list[int]
    drifted_since: datetime | None = None
    failure: str | None = None
    next_at: datetime
    waits: Waits | None = None


class TopologyChanged(Refused):
    """Another topology was found since; `extra["digest"]` is that of the newest."""

    codes = ("topology_changed",)


class TopologyMisfit(Refused):
    """The topology is not that of the node's slots."""

    codes = ("topology_misfit",)
