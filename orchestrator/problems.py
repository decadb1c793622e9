"""Refusals that several nouns share, each with a stable code, and their base class `Problem`.

A noun's own refusals are in its `refusals.py` or `rules.py`, those of tokens in `orchestrator/http/oidc/token_refusals.py`.
docs/reference/http-api.md lists all of them, with the places that decide each. A `Problem` becomes an RFC 9457 document at
the edge. `business` marks the definite outcomes of a well-formed request, which are stored with its operation key
(DESIGN §6); malformed and unauthorised requests, overload and internal errors are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Self
from uuid import UUID

from berth.process.json_objects import JsonObject


class Outcome(StrEnum):
    """What the client may conclude about its write (P12)."""

    NOT_DONE = "not_done"
    IN_PROGRESS = "in_progress"
    UNKNOWN = "unknown"


class Problem(Exception):
    """A refusal: HTTP status, stable code, one sentence for a person, and what the client needs to act."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    outcome: ClassVar[Outcome] = Outcome.NOT_DONE
    business: ClassVar[bool] = False
    retry_after_seconds: ClassVar[int | None] = None

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    def headers(self) -> dict[str, str]:
        """Header fields of the response."""
        return {} if self.retry_after_seconds is None else {"retry-after": str(self.retry_after_seconds)}

    def document(self) -> JsonObject:
        """The problem document, without `server_time`, which the edge adds."""
        return {
            "type": f"https://berth.invalid/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "outcome": self.outcome.value,
            **self.extra,
        }


class Unforeseen(Problem):
    """An unforeseen failure, before a commit or after it: retry with the same key to learn the outcome.

    Where it is certain that nothing was committed, `Problem` itself says so.
    """

    outcome = Outcome.UNKNOWN

    def __init__(self) -> None:
        super().__init__("something failed that should not have; it has been logged")


class Malformed(Problem):
    """The request cannot be read."""

    status, code, title = 400, "malformed", "Malformed request"


class InvalidCursor(Problem):
    """The cursor is not one that this list has returned."""

    status, code, title = 400, "invalid_cursor", "Invalid cursor"


class Unauthenticated(Problem):
    """No key, an unknown one, or a revoked one."""

    status, code, title = 401, "unauthenticated", "Unauthenticated"


class TooManyFailures(Problem):
    """Too many wrong credentials came from one address; this one was not looked up."""

    status, code, title = 429, "too_many_failures", "Too many failures"
    retry_after_seconds = 1

    def headers(self) -> dict[str, str]:
        """Retry-After, and the end of the connection."""
        return {**super().headers(), "connection": "close"}


class Forbidden(Problem):
    """A known principal asks for what its role does not allow."""

    status, code, title = 403, "forbidden", "Forbidden"


class RoleRequired(Forbidden):
    """The caller's role does not allow this; `roles_required` lists the roles that do."""

    code, title = "role_required", "Role required"

    @classmethod
    def of(cls, role: str, required: Collection[str]) -> Self:
        """The refusal for a caller with this role."""
        named = sorted(required)
        return cls(
            f"this needs the role {' or '.join(named)}, and this key or token has the role {role}; use another one",
            role=role,
            roles_required=named,
        )


class IdentityConflict(Problem):
    """Two keys were used as the identity of a node; its calls are refused until it enrols again."""

    status, code, title = 403, "identity_conflict", "Identity conflict"


class TooManyCertificates(Problem):
    """The most certificates of one node are valid; it renews when one of them has ended."""

    status, code, title = 409, "too_many_certificates", "Too many certificates"


class NotFound(Problem):
    """There is no such object, or it belongs to another tenant."""

    status, code, title, business = 404, "not_found", "Not found", True


class InvalidState(Problem):
    """The object's state does not allow this."""

    status, code, title, business = 409, "invalid_state", "Invalid state", True

    def __init__(self, detail: str, *, state: str, **extra: Any) -> None:
        super().__init__(detail, state=state, **extra)


class NodeInUse(Problem):
    """Claims are open on the node; `claims` names them and what to do about each."""

    status, code, title, business = 409, "node_in_use", "Node in use", True


class AlreadyExists(Problem):
    """A unique name or key is taken."""

    status, code, title, business = 409, "already_exists", "Already exists", True


class TenantDeleted(Problem):
    """The tenant is deleted for good."""

    status, code, title, business = 409, "tenant_deleted", "Tenant deleted", True

    @classmethod
    def at(cls, tenant_id: UUID) -> Self:
        """The refusal of a change of this tenant."""
        return cls(f"tenant {tenant_id} is deleted; create another tenant")


class UnavailableReason(StrEnum):
    """Why no capacity was given."""

    UNKNOWN_SKU = "unknown_sku"
    WRONG_SHAPE = "wrong_shape"
    COUNT_NOT_ALLOWED = "count_not_allowed"
    NONE_IN_REGION = "none_in_region"
    NO_NODE_LARGE_ENOUGH = "no_node_large_enough"
    ONLY_FRAGMENTS_LEFT = "only_fragments_left"
    BUSY_NOW = "busy_now"
    BUSY_IN_WINDOW = "busy_in_window"
    NOT_RESERVED = "not_reserved"


class SkuUnavailable(Problem):
    """The request cannot be placed; `reason` is something a person can act on."""

    status, code, title, business = 409, "sku_unavailable", "SKU unavailable", True

    def __init__(self, detail: str, *, reason: UnavailableReason, **extra: Any) -> None:
        super().__init__(detail, reason=reason.value, **extra)


class Quota(StrEnum):
    """What is bounded for each tenant, beside GPUs; an operator may set each limit, the defaults are settings."""

    OPERATIONS = "operations"
    RESERVATIONS = "reservations"
    HOLDS = "holds"
    WEBHOOKS = "webhooks"
    SUBSCRIPTIONS = "subscriptions"
    RETENTION_POLICIES = "retention_policies"
    SSH_KEYS = "ssh_keys"
    API_KEYS = "api_keys"
    MEMBERS = "members"
    """Members and open invitations together."""
    KV_KEYS = "kv_keys"
    KV_BYTES = "kv_bytes"
    LOG_BYTES_PER_DAY = "log_bytes_per_day"
    STREAMS = "streams"
    """Open streams and sockets in one process; the refusal is `ConcurrencyLimited`."""


_DELETED_KEYS = "delete keys, which count until the log has dropped them"
_ROOM = {
    Quota.OPERATIONS: "each is kept for the retention window, so retry later",
    Quota.RESERVATIONS: "cancel one",
    Quota.HOLDS: "confirm or cancel one",
    Quota.WEBHOOKS: "delete one",
    Quota.SUBSCRIPTIONS: "delete one",
    Quota.RETENTION_POLICIES: "delete one",
    Quota.SSH_KEYS: "delete one",
    Quota.API_KEYS: "revoke one",
    Quota.MEMBERS: "remove a member or revoke an invitation",
    Quota.KV_KEYS: _DELETED_KEYS,
    Quota.KV_BYTES: _DELETED_KEYS,
    Quota.STREAMS: "close one",
    Quota.LOG_BYTES_PER_DAY: "a day begins at 00:00 UTC, so retry then",
}
"""What makes room in a quota."""


class QuotaExceeded(Problem):
    """The tenant's quota would be exceeded: `quota` names it, `limit` and `used` are its numbers; GPUs have `gpus_` beside."""

    status, code, title, business = 409, "quota_exceeded", "Quota exceeded", True
    tenant_id: UUID | None = None
    """Of a batch that failed: it goes on without this tenant."""

    @classmethod
    def of(cls, quota: Quota, *, limit: int, used: int, tenant_id: UUID | None = None) -> Self:
        """The refusal at a quota."""
        refusal = cls(
            f"the quota of {limit:,} {quota.replace('_', ' ')} is reached ({used:,} used): {_ROOM[quota]},"
            " or ask the operator for more",
            quota=quota.value,
            limit=limit,
            used=used,
        )
        refusal.tenant_id = tenant_id
        return refusal


class SshKeyNotFound(Problem):
    """One of the SSH keys named is not the tenant's."""

    status, code, title, business = 422, "ssh_key_not_found", "SSH key not found", True


class ImageUnavailable(Problem):
    """The image is unknown, retired, not offered for this SKU and region, or without cloud-init for user data."""

    status, code, title, business = 422, "image_unavailable", "Image unavailable", True


class Invalid(Problem):
    """The body does not fit the schema; `errors` names the fields."""

    status, code, title = 422, "invalid", "Invalid request"


class OperationConflict(Problem):
    """The operation key was used with other content."""

    status, code, title = 422, "operation_conflict", "Operation conflict"


class OperationFenced(Problem):
    """An earlier status query fenced the key: it returned that no request had used it."""

    status, code, title = 409, "operation_fenced", "Operation fenced"


class OperationInProgress(Problem):
    """The first attempt with this key has not ended yet."""

    status, code, title = 409, "operation_in_progress", "Operation in progress"
    outcome = Outcome.IN_PROGRESS
    retry_after_seconds = 1

    @classmethod
    def ended_without_effect(cls) -> Self:
        """The first attempt held the key when this one came, and left nothing behind."""
        return cls("the first request with this key ended without effect a moment ago; retry")


class RequestTimeout(Problem):
    """The body did not arrive completely in time."""

    status, code, title = 408, "request_timeout", "Request timeout"


class TooLarge(Problem):
    """The body is larger than the limit."""

    status, code, title = 413, "too_large", "Content too large"


class HeadTooLarge(Problem):
    """The request line and headers are larger than the limit."""

    status, code, title = 431, "head_too_large", "Request header fields too large"


class DatabaseUnavailable(Problem):
    """The database could not be queried; nothing was done."""

    status, code, title = 503, "database_unavailable", "Database unavailable"
    retry_after_seconds = 1


class RestoreInProgress(DatabaseUnavailable):
    """The database is being restored to an earlier moment; nothing is served until the restore is closed."""

    code, title = "restore_in_progress", "Restore in progress"
    retry_after_seconds = 5


class CertificatePending(Problem):
    """The request for a certificate is recorded and the issuer has not signed it yet; the same request returns it later."""

    status, code, title = 503, "certificate_pending", "Certificate not issued yet"
    outcome = Outcome.IN_PROGRESS
    retry_after_seconds = 2


class OutcomeUnknown(Problem):
    """The connection was lost at COMMIT: retry with the same key to learn what happened."""

    status, code, title = 503, "outcome_unknown", "Outcome unknown"
    outcome = Outcome.UNKNOWN
    retry_after_seconds = 1


class NotConfirmed(OutcomeUnknown, DatabaseUnavailable):
    """The primary may show commits that no standby has (database/unconfirmed_commits.py): an answer could be lost."""


class Overloaded(Problem):
    """A bound was reached; nothing was done."""

    status, code, title = 503, "overloaded", "Overloaded"
    retry_after_seconds = 1


class ConcurrencyLimited(Problem):
    """The principal has as many requests in flight in this process as it may; nothing was done."""

    status, code, title = 429, "concurrency_limited", "Too many requests at once"
    retry_after_seconds = 1


class RateLimited(Problem):
    """The principal has sent more requests of a class than it may; nothing was done."""

    status, code, title = 429, "rate_limited", "Too many requests"
    retry_after_seconds = 1

    _fields: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, policy: str, *, quota: int, window_seconds: float, wait_seconds: float) -> Self:
        """The refusal with the fields of draft-ietf-httpapi-ratelimit-headers."""
        refusal = cls(f"the rate of {policy} requests of this principal is exceeded; retry in {wait_seconds:.1f} s")
        wait = max(1, math.ceil(wait_seconds))
        refusal._fields = {
            "retry-after": str(wait),
            "ratelimit-policy": f'"{policy}";q={quota};w={math.ceil(window_seconds)}',
            "ratelimit": f'"{policy}";r=0;t={wait}',
        }
        return refusal

    def headers(self) -> dict[str, str]:
        """`Retry-After`, `RateLimit-Policy` and `RateLimit`."""
        return {**super().headers(), **self._fields}


class SlotOverflow(Problem):
    """A deadline or retirement would exceed the representable range of times."""

    status, code, title, business = 422, "slot_overflow", "Deadline beyond the representable range", True
