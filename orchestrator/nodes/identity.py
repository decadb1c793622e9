"""Which node calls: read from its verified certificate, checked against the database on each call (DESIGN §8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from orchestrator.http.query_parameters import refuse_unknown_parameters
from orchestrator.http.services import Parts
from orchestrator.nodes.certificates import node_identity
from orchestrator.nodes.queries import find_standing


@dataclass(frozen=True, slots=True)
class CallingNode:
    """A node whose certificate counted when the request came in. `serial` is lower-case hex."""

    node_id: UUID
    epoch: int
    serial: str
    state: str


async def calling_node(request: Request, parts: Parts) -> CallingNode:
    """The caller, or `Unauthenticated`; then `Invalid` for a query parameter that the path does not know.

    Not remembered: a revoked certificate is refused from the next call on.
    """
    identity = node_identity(request.scope.get("state", {}).get("peer"), parts.settings.trust_domain)
    standing = await find_standing(parts.context.database, identity.node_id, identity.serial)
    refuse_unknown_parameters(request)
    return CallingNode(standing.node_id, standing.epoch, identity.serial, standing.state)


NodeCaller = Annotated[CallingNode, Depends(calling_node)]
