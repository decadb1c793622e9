"""Retention policies, one function per path (docs/reference/log-retention.md)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, remove, segment, write
from berth.client.models import Answer, Page

PATH = "/v1/retention"
CONSUMERS = "/api/v1/admin/consumers"


class RetentionPolicy(Answer):
    """The log is kept from `kept_from` on: that is `prevent_truncate`, or a tenant's bound where it lies behind it."""

    policy_id: str
    prevent_truncate: int
    kept_from: int
    created_at: datetime
    updated_at: datetime


class LogConsumer(Answer):
    """A consumer's stored log position: everything up to `version` is done, since `updated_at`."""

    consumer: str
    version: int
    updated_at: datetime


def put_retention_policy(
    policy_id: str, *, prevent_truncate: int, idempotency_key: str | None = None
) -> Call[RetentionPolicy]:
    """Keep this version of the log and higher ones.

    Raises `LogTruncated` where it is not kept any more, `VersionInFuture`, `RetentionOutOfBounds`, `QuotaExceeded`.
    """
    body = {"prevent_truncate": prevent_truncate}
    return write("PUT", f"{PATH}/{segment(policy_id)}", RetentionPolicy, body, idempotency_key)


def get_retention_policy(policy_id: str) -> Call[RetentionPolicy]:
    """One policy. Raises `NotFound`."""
    return read(f"{PATH}/{segment(policy_id)}", RetentionPolicy)


def list_retention_policies(*, tenant_id: UUID | None = None) -> Call[list[RetentionPolicy]]:
    """Every policy of the tenant, or of the operators, by id; with an operator's key also those of a tenant."""
    return read(PATH, list[RetentionPolicy], tenant_id=None if tenant_id is None else str(tenant_id))


def delete_retention_policy(policy_id: str, *, idempotency_key: str | None = None) -> Call[None]:
    """Let go of what the policy held. Raises `NotFound`."""
    return remove(f"{PATH}/{segment(policy_id)}", idempotency_key)


def list_consumers(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[LogConsumer]]:
    """The consumers of the log, by name (admin keys only)."""
    return read_page(CONSUMERS, LogConsumer, limit=limit, cursor=cursor)


def forget_consumer(consumer: str, *, reason: str, idempotency_key: str | None = None) -> Call[LogConsumer]:
    """Forget a consumer, so that the log is not kept for it. Audited. Raises `NotFound`, `InvalidState`."""
    path = f"{CONSUMERS}/{segment(consumer)}/forget"
    return write("POST", path, LogConsumer, {"reason": reason}, idempotency_key)
