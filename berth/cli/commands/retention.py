"""`berth retention`: policies that delay truncation of the log, of a tenant or, with an admin key, of the operators."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Retention policies: keep the log from a version on.")
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
    tenant: Annotated[str | None, typer.Option(help="id or name of the tenant (admin keys only)")] = None,
) -> None:
    """List the policies."""
    with session.client() as client:
        found = client.list_retention_policies(tenant_id=session.tenant_id(client, tenant, existing=True))
        show_list(session, found, ROWS)


@command(app, "consumers")
def consumers(session: Session) -> None:
    """List the consumers that store a log position, the furthest behind first (admin keys only)."""
    with session.client() as client:
        behind_first = sorted(client.iterate_consumers(), key=lambda consumer: (consumer.version, consumer.consumer))
        show_list(session, behind_first, CONSUMERS)


@command(app, "forget-consumer")
def forget_consumer(
    session: Session,
    consumer: Annotated[str, typer.Argument(help="the consumer's name")],
    reason: Annotated[str, typer.Option(help="why the consumer will not return; stored in the audit log")],
    idempotency_key: KeyOption = None,
) -> None:
    """Stop keeping the log for a consumer; recorded in the audit log (admin keys only)."""
    with session.client() as client:
        forgotten = client.forget_consumer(consumer, reason=reason, idempotency_key=idempotency_key)
        show_one(session, forgotten, CONSUMERS)


@command(app, "set")
def set_(
    session: Session,
    policy: PolicyArgument,
    prevent_truncate: Annotated[int, typer.Argument(help="keep this version of the log and all later ones")],
    idempotency_key: KeyOption = None,
) -> None:
    """Create or change a policy that keeps the log from a version on."""
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
    """Delete a policy; it no longer delays truncation."""
    with session.client() as client:
        client.delete_retention_policy(policy, idempotency_key=idempotency_key)
