"""Payments in the ledger: one line per idempotency key; a trigger adds each line to the balance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.billing.rules import AMOUNT_MAX, BalanceOutOfBounds
from orchestrator.billing.store.balances import evaluate_locked_balance, lock_balance, read_balance
from orchestrator.database.transactions import Transaction
from orchestrator.problems import OperationConflict
from orchestrator.tenants.principals import Actor

_INSERT = """
insert into ledger (tenant_id, kind, amount_micro_units, reference, actor_id, operation_key)
values (:tenant_id, :kind, :amount, :reference, :actor_id, :operation_key)
returning id, tenant_id, kind, amount_micro_units::bigint as amount_micro_units, reference, actor_id, written_at
"""
_FIND = """
select id, tenant_id, kind, amount_micro_units::bigint as amount_micro_units, reference, actor_id, written_at
from ledger where kind <> 'usage' and actor_id = :actor_id and operation_key = :operation_key
"""


@dataclass(frozen=True, slots=True)
class Payment:
    """An amount paid in (`top_up`) or taken back (`withdrawal`), in micro-units, with its reason."""

    tenant_id: UUID
    kind: str
    amount_micro_units: int
    reference: str | None


@dataclass(frozen=True, slots=True)
class PaymentLine:
    """A payment's line in the ledger."""

    id: int
    tenant_id: UUID
    kind: str
    amount_micro_units: int
    reference: str | None
    actor_id: str
    written_at: datetime


async def write_payment(
    tx: Transaction, payment: Payment, actor: Actor, operation_key: str, request_id: str | None
) -> PaymentLine:
    """Write a payment once per operator and key; a repetition returns the first line, however old it is.

    Raises `NotFound`, `BalanceOutOfBounds`, and `OperationConflict` if the key made another payment.
    """
    await lock_balance(tx, payment.tenant_id)
    existing = await _find(tx, actor.id, operation_key)
    if existing is not None:
        if any(getattr(existing, name) != value for name, value in asdict(payment).items()):
            raise OperationConflict(
                f"this key made another payment, ledger line {existing.id}; use a new key", line_id=existing.id
            )
        return existing
    before = await read_balance(tx, payment.tenant_id)
    amount = payment.amount_micro_units if payment.kind == "top_up" else -payment.amount_micro_units
    if abs(before.settled + amount) > AMOUNT_MAX:
        raise BalanceOutOfBounds(
            f"the balance would be {before.settled + amount} micro-units; its bound is {AMOUNT_MAX} either way",
            balance_max_micro_units=AMOUNT_MAX,
        )
    line = await _insert(tx, payment, actor.id, operation_key)
    await evaluate_locked_balance(tx, payment.tenant_id)
    subject = f"tenants/{payment.tenant_id}"
    detail = {"line_id": line.id, "amount_micro_units": payment.amount_micro_units, "reference": payment.reference}
    await audit.record(tx, actor, f"balance.{payment.kind}", subject, detail, request_id)
    return line


async def _insert(tx: Transaction, payment: Payment, actor_id: str, operation_key: str) -> PaymentLine:
    values = {
        "tenant_id": payment.tenant_id,
        "kind": payment.kind,
        "amount": payment.amount_micro_units,
        "reference": payment.reference,
        "actor_id": actor_id,
        "operation_key": operation_key,
    }
    return PaymentLine(**(await tx.execute(_INSERT, values)).one()._mapping)


async def _find(tx: Transaction, actor_id: str, operation_key: str) -> PaymentLine | None:
    row = (await tx.execute(_FIND, {"actor_id": actor_id, "operation_key": operation_key})).first()
    return None if row is None else PaymentLine(**row._mapping)
