"""Retention policies, one function per path (docs/retention.md)."""

from __future__ import annotations

from datetime import datetime

from berth.client.calls import Call, read, remove, segment, write
from berth.client.models import Answer

PATH = "/v1/retention"


class RetentionPolicy(Answer):
    """The log is kept from `kept_from` on: that is `prevent_truncate`, or a tenant's bound where it lies behind it."""

    policy_id: str
    prevent_truncate: int
    kept_from: int
    created_at: datetime
    updated_at: datetime


def put_retention_policy(
    policy_id: str, *, prevent_truncate: int, idempotency_key: str | None = None
) -> Call[RetentionPolicy]:
    """Keep this version of the log and higher ones.

    Raises `LogTruncated` where it is not kept any more, `VersionInFuture`, `RetentionOutOfBounds`, `RetentionPoliciesFull`.
    """
    body = {"prevent_truncate": prevent_truncate}
    return write("PUT", f"{PATH}/{segment(policy_id)}", RetentionPolicy, body, idempotency_key)


def get_retention_policy(policy_id: str) -> Call[RetentionPolicy]:
    """One policy. Raises `NotFound`."""
    return read(f"{PATH}/{segment(policy_id)}", RetentionPolicy)


def list_retention_policies() -> Call[list[RetentionPolicy]]:
    """Every policy of the tenant, or of the operators, by id."""
    return read(PATH, list[RetentionPolicy])


def delete_retention_policy(policy_id: str, *, idempotency_key: str | None = None) -> Call[None]:
    """Let go of what the policy held. Raises `NotFound`."""
    return remove(f"{PATH}/{segment(policy_id)}", idempotency_key)
