"""`berth retention`: what keeps the log from being truncated; of a tenant, or of the operators with an admin key."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Retention: keep the log from a version on.")
PolicyArgument = Annotated[str, typer.Argument(help="the policy's id")]
KeyOption = Annotated[str | None, typer.Option(help="repeat an earlier request with its key")]
ROWS: list[Column] = [
    ("policy", lambda p: p.policy_id), ("prevent truncate", lambda p: p.prevent_truncate),
    ("kept from", lambda p: p.kept_from), ("updated", lambda p: p.updated_at),
]  # fmt: skip


CONSUMERS: list[Column] = [
    ("consumer", lambda c: c.consumer), ("version", lambda c: c.version), ("since", lambda c: c.updated_at)
]  # fmt: skip


@command(app, "list")
def list_(
    session: Session,
    tenant: Annotated[str | None, typer.Option(help="this tenant's, id or name (admin keys)")] = None,
) -> None:
    """List the policies."""
    with session.client() as client:
        found = client.list_retention_policies(tenant_id=session.tenant_id(client, tenant, existing=True))
        show_list(session, found, ROWS)


@command(app, "consumers")
def consumers(session: Session) -> None:
    """Show who keeps its position in the log, who is the furthest behind first (admin keys only)."""
    with session.client() as client:
        show_list(session, client.list_consumers(), CONSUMERS)


@command(app, "forget-consumer")
def forget_consumer(
    session: Session,
    consumer: Annotated[str, typer.Argument(help="the consumer's name")],
    reason: Annotated[str, typer.Option(help="why it will not come again; goes into the audit")],
    idempotency_key: KeyOption = None,
) -> None:
    """Keep nothing of the log for a consumer any more (admin keys only); on the record."""
    with session.client() as client:
        forgotten = client.forget_consumer(consumer, reason=reason, idempotency_key=idempotency_key)
        show_one(session, forgotten, CONSUMERS)


@command(app, "set")
def set_(
    session: Session,
    policy: PolicyArgument,
    prevent_truncate: Annotated[int, typer.Argument(help="this version of the log and higher ones are kept")],
    idempotency_key: KeyOption = None,
) -> None:
    """Make a policy, or change it: the log is kept from a version on."""
    with session.client() as client:
        put = client.put_retention_policy(policy, prevent_truncate=prevent_truncate, idempotency_key=idempotency_key)
        show_one(session, put, ROWS)


@command(app, "get")
def get(session: Session, policy: PolicyArgument) -> None:
    """Show one policy."""
    with session.client() as client:
        show_one(session, client.get_retention_policy(policy), ROWS)


@command(app, "delete")
def delete(session: Session, policy: PolicyArgument, idempotency_key: KeyOption = None) -> None:
    """Let go of what a policy held."""
    with session.client() as client:
        client.delete_retention_policy(policy, idempotency_key=idempotency_key)
