"""`berth balance`: a tenant's balance; operators top up, withdraw, and set whether a tenant is prepaid."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.printing import Column, show_one
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Prepaid balances, in whole micro-units.")
TenantArgument = Annotated[str, typer.Argument(help="the tenant, id or name")]
AmountArgument = Annotated[int, typer.Argument(min=1, help="micro-units")]
KeyOption = Annotated[str | None, typer.Option(help="repeat an earlier request with its key")]
BALANCE: list[Column] = [
    ("tenant", lambda b: b.tenant_id), ("prepaid", lambda b: b.prepaid), ("available", lambda b: b.available_micro_units),
    ("settled", lambda b: b.settled_micro_units), ("accruing", lambda b: b.accruing_micro_units),
    ("a second", lambda b: b.rate_micro_units_per_second), ("runs out", lambda b: b.runs_out_at),
    ("low below", lambda b: b.low_threshold_micro_units), ("low since", lambda b: b.low_told_at),
    ("depleted since", lambda b: b.depleted_at),
]  # fmt: skip
PAYMENT: list[Column] = [
    ("line", lambda p: p.id), ("tenant", lambda p: p.tenant_id), ("kind", lambda p: p.kind),
    ("amount", lambda p: p.amount_micro_units), ("reference", lambda p: p.reference), ("written", lambda p: p.written_at),
]  # fmt: skip


@command(app, "show")
def show(
    session: Session, tenant: Annotated[str | None, typer.Option(help="whose, id or name (admin keys)")] = None
) -> None:
    """Show what is left, and until when that lasts."""
    with session.client() as client:
        show_one(session, client.get_balance(tenant_id=session.tenant_id(client, tenant)), BALANCE)


@command(app, "set")
def set_(
    session: Session,
    tenant: TenantArgument,
    prepaid: Annotated[
        bool, typer.Option(help="whether billing releases the tenant's allocations when the balance is used up")
    ],
    low_below: Annotated[
        int | None, typer.Option(min=0, help="emit balance.low below this amount; default: never")
    ] = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Set whether a tenant is prepaid, and the amount below which its balance is low (admin keys only)."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        assert owner is not None, "a tenant is named"
        balance = client.set_balance_policy(
            owner, prepaid=prepaid, low_threshold_micro_units=low_below, idempotency_key=idempotency_key
        )
        show_one(session, balance, BALANCE)


@command(app, "top-up")
def top_up(
    session: Session,
    tenant: TenantArgument,
    amount: AmountArgument,
    reference: Annotated[str | None, typer.Option(help="an invoice or payment number")] = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Add to a tenant's balance (admin keys only)."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        assert owner is not None, "a tenant is named"
        line = client.top_up_balance(
            owner, amount_micro_units=amount, reference=reference, idempotency_key=idempotency_key
        )
        show_one(session, line, PAYMENT)


@command(app, "withdraw")
def withdraw(
    session: Session,
    tenant: TenantArgument,
    amount: AmountArgument,
    reference: Annotated[str, typer.Option(help="the reason or document")],
    idempotency_key: KeyOption = None,
) -> None:
    """Deduct from a tenant's balance, to correct a mistake or for a refund (admin keys only)."""
    with session.client() as client:
        owner = session.tenant_id(client, tenant)
        assert owner is not None, "a tenant is named"
        line = client.withdraw_from_balance(
            owner, amount_micro_units=amount, reference=reference, idempotency_key=idempotency_key
        )
        show_one(session, line, PAYMENT)
