"""Balances: who is prepaid, and what is given and taken back."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from orchestrator.billing.commands import set_balance_policy, top_up_balance, withdraw_from_balance
from orchestrator.billing.queries import find_balance
from orchestrator.billing.schemas import Balance, Payment, SetBalancePolicy, TopUp, Withdraw
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite

router = APIRouter(prefix="/tenants", tags=["admin: balances"], responses=PROBLEM_RESPONSES)


@router.get("/{tenant_id}/balance", response_model=Balance)
async def find(tenant_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """What is left to a tenant."""
    return json_response((await find_balance(parts.context.database, tenant_id)).document())


@router.put("/{tenant_id}/balance", response_model=Balance)
async def set_policy(tenant_id: UUID, body: SetBalancePolicy, write: AdminWrite) -> Response:
    """Make a tenant prepaid, or not, and say below what its balance is low."""
    answer = await set_balance_policy(
        write.context,
        write.operation(body),
        write.actor,
        tenant_id,
        prepaid=body.prepaid,
        low_threshold=body.low_threshold_micro_units,
    )
    return answer_response(answer)


@router.post("/{tenant_id}/top-ups", status_code=201, response_model=Payment)
async def top_up(tenant_id: UUID, body: TopUp, write: AdminWrite) -> Response:
    """Give to a balance."""
    answer = await top_up_balance(
        write.context,
        write.operation(body),
        write.actor,
        tenant_id,
        amount=body.amount_micro_units,
        reference=body.reference,
    )
    return answer_response(answer)


@router.post("/{tenant_id}/withdrawals", status_code=201, response_model=Payment)
async def withdraw(tenant_id: UUID, body: Withdraw, write: AdminWrite) -> Response:
    """Take back from a balance."""
    answer = await withdraw_from_balance(
        write.context,
        write.operation(body),
        write.actor,
        tenant_id,
        amount=body.amount_micro_units,
        reference=body.reference,
    )
    return answer_response(answer)
