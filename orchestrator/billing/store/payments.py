"""Writes a payment into the ledger, once for each key, and lets the balance follow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.billing.rules import AMOUNT_MAX, BalanceOutOfBounds
from orchestrator.billing.store.balances import find_payment, lock_balance, pay, read_standing
from orchestrator.billing.store.evaluation import judge_balance
from orchestrator.database.transactions import Transaction
from orchestrator.problems import OperationConflict
from orchestrator.tenants.principals import Actor


@dataclass(frozen=True, slots=True)
class Payment:
    """What is given (`top_up`) or taken (`withdrawal`), in micro-units, and what for."""

    tenant_id: UUID
    kind: str
    amount_micro_units: int
    reference: str | None


async def write_payment(
    tx: Transaction, payment: Payment, actor: Actor, operation_key: str, request_id: str | None
) -> dict[str, Any]:
    """The line's document; the one that is there, where this key of this operator made it before its answer was forgotten.

    Raises `NotFound`, `BalanceOutOfBounds`, and `OperationConflict` where the key made another.
    """
    await lock_balance(tx, payment.tenant_id)
    there = await find_payment(tx, actor.id, operation_key)
    if there is not None:
        if any(there[name] != value for name, value in asdict(payment).items()):
            raise OperationConflict("this key made another payment", line_id=there["id"])
        return there
    before = await read_standing(tx, payment.tenant_id)
    amount = payment.amount_micro_units if payment.kind == "top_up" else -payment.amount_micro_units
    if abs(before.settled + amount) > AMOUNT_MAX:
        raise BalanceOutOfBounds(
            f"the balance would be {before.settled + amount} micro-units", balance_max_micro_units=AMOUNT_MAX
        )
    line = await pay(
        tx, payment.tenant_id, payment.kind, payment.amount_micro_units, payment.reference, actor.id, operation_key
    )
    await judge_balance(tx, payment.tenant_id)
    subject = f"tenants/{payment.tenant_id}"
    detail = {"line_id": line["id"], "amount_micro_units": payment.amount_micro_units, "reference": payment.reference}
    await audit.record(tx, actor, f"balance.{payment.kind}", subject, detail, request_id)
    return line
