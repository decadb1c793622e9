"""Give out a one-time token with which a node's agent enrols."""

from __future__ import annotations

import hashlib
import secrets
from uuid import UUID

from orchestrator.domain.errors import InvalidState
from orchestrator.domain.states import NodeState, Principal
from orchestrator.domain.times import rfc3339
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, enrolment, nodes
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation
from orchestrator.trust.sealing import Sealer

TOKEN_BYTES = 32


async def create_enrolment_token(
    context: Context,
    operation: Operation,
    principal: Principal,
    sealer: Sealer,
    node_id: UUID,
    *,
    hardware_id: str | None,
    valid_seconds: float,
) -> Answer:
    """201 with the token, sealed for the caller. Naming the hardware lets another machine take the node's place."""
    token = f"enrol_{secrets.token_urlsafe(TOKEN_BYTES)}"

    async def effect(tx: Transaction) -> Done:
        state = await nodes.lock_node(tx, node_id)
        if state is NodeState.RETIRED:
            raise InvalidState("a retired node does not enrol", state=state.value)
        expires_at = await enrolment.insert_token(
            tx,
            node_id=node_id,
            token_hash=hashlib.sha256(token.encode()).digest(),
            hardware_id=hardware_id,
            created_by=principal.id,
            valid_seconds=valid_seconds,
        )
        detail = {"hardware_id": hardware_id, "expires_at": rfc3339(expires_at)}
        await audit.record(
            tx, principal.actor, "node.create_enrolment_token", f"nodes/{node_id}", detail, operation.request_id
        )
        return Done(201, {"token": sealer.seal(token), "expires_at": expires_at}, node_id)

    return await run_once(context, operation, effect, None)
