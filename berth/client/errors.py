"""Errors of the client; each has the outcome of its request: `not_done`, `in_progress` or `unknown`.

Each `code` of the server's problem documents (RFC 9457; docs/reference/http-api.md) has a class, below that of its situation
(`NotFound`, `Invalid`, `Unavailable`).
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from berth.process.json_objects import JsonMapping


class BerthError(Exception):
    """A request was refused, failed, or has an unknown outcome. `extra` holds every further member of the problem document.

    `kept`: the server keeps answers of this kind with the operation's key. The others speak of one attempt only.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    kept: ClassVar[bool] = False

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int | None = None,
        outcome: str = "not_done",
        extra: JsonMapping | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.outcome = outcome
        self.extra = dict(extra or {})

    @property
    def settles(self) -> bool:
        """Whether this is what became of the operation's key, whichever of its attempts was answered so."""
        return self.kept and self.code in self.codes

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the server asked to wait, if it did."""
        value = self.extra.get("retry_after_seconds")
        return float(value) if isinstance(value, int | float) else None

    @property
    def idempotency_key(self) -> str | None:
        """The key of the write that this is about."""
        return value if isinstance(value := self.extra.get("idempotency_key"), str) else None


class Refused(BerthError):
    """A definite refusal of a well-formed request; a repetition with the same key gets the same."""

    kept = True


class SkuUnavailable(Refused):
    """Nothing could be placed; `reason` says why (docs/reference/http-api.md lists the reasons)."""

    codes = ("sku_unavailable",)

    @property
    def reason(self) -> str:
        """The stable reason, such as `busy_now` or `no_node_large_enough`."""
        return str(self.extra.get("reason", "unknown"))


class BalanceDepleted(Refused):
    """The tenant's prepaid balance is used up; nothing can be begun before it is topped up."""

    codes = ("balance_depleted",)


class BalanceInsufficient(Refused):
    """As prepaid, the tenant would lose its allocations at once; `extra` holds `available_micro_units`."""

    codes = ("balance_insufficient",)


class BalanceOutOfBounds(Refused):
    """The balance would exceed its maximum; `extra` holds `balance_max_micro_units`."""

    codes = ("balance_out_of_bounds",)


class NotFound(Refused):
    """There is no such object, or it belongs to another tenant."""

    codes = ("not_found",)


class ReservationNotFound(NotFound):
    """There is no such reservation, or it belongs to another tenant."""

    codes = ("reservation_not_found",)


class ResourceNotFound(NotFound):
    """A named resource is not registered, or has been retired."""

    codes = ("resource_not_found",)


class InvalidState(Refused):
    """The object's state does not allow it; `extra["state"]` is the current one."""

    codes = ("invalid_state",)


class VerbInProgress(Refused):
    """Another verb of the allocation is in progress; `extra["verb"]` names it."""

    codes = ("verb_in_progress",)


class HolderMismatch(Refused):
    """The holder named is not the one that holds the reservation."""

    codes = ("holder_mismatch",)


class ReservationRetired(Refused):
    """The reservation ended, and its record was kept as long as was promised."""

    codes = ("reservation_retired",)


class ResourceBusy(Refused):
    """A unit is claimed in that window; `conflicts` names those claims that belong to the caller.

    `waits_for` is `cleanup` if nothing else keeps the units, and `since` says when that wait began.
    """

    codes = ("resource_busy",)

    @property
    def waits_for(self) -> str | None:
        """`cleanup`, or None if an owner has a right to the units in that window."""
        return str(self.extra["waits_for"]) if "waits_for" in self.extra else None

    @property
    def since(self) -> datetime | None:
        """When the wait for cleanup began."""
        return datetime.fromisoformat(str(self.extra["since"])) if self.waits_for else None

    @property
    def conflicts(self) -> list[str]:
        """The ids in the way, of those that the caller may know."""
        found = self.extra.get("conflicts")
        return [str(one) for one in found] if isinstance(found, list) else []


class ResourceOutOfService(Refused):
    """A named resource is out of service; `extra["reason"]` says why."""

    codes = ("resource_out_of_service",)


class ResourceNotAllocatable(Refused):
    """What the reservation still holds is nothing that an allocation could run on."""

    codes = ("resource_not_allocatable",)


class NodeInUse(Refused):
    """Something holds units of the node; `extra["claims"]` names each and what to do about it."""

    codes = ("node_in_use",)


class ImageInUse(Refused):
    """Something needs the image; `extra["users"]` counts what does, by kind."""

    codes = ("image_in_use",)


class AlreadyExists(Refused):
    """An object with this name is already there."""

    codes = ("already_exists",)


class SecretNotShownAgain(Refused):
    """Done before under another token; `extra["answer"]` is what it made, without its secret."""

    codes = ("secret_not_shown_again",)


class OperationConflict(Refused):
    """The idempotency key was used before with other content."""

    codes = ("operation_conflict",)


class OperationFenced(Refused):
    """The key was fenced by an earlier status query; the request was not done. Send it again with a new key."""

    codes = ("operation_fenced",)


class OperationInProgress(BerthError):
    """Another request with the same key still runs."""

    codes = ("operation_in_progress",)


class OutcomeUnknown(BerthError):
    """The write may or may not have happened, and a status query did not settle it; `idempotency_key` names the key."""

    codes = ("outcome_unknown",)


class Unauthenticated(BerthError):
    """The key or token is missing, wrong or revoked."""

    codes = ("unauthenticated",)


class TokenExpired(Unauthenticated):
    """The token was good until its `exp`."""

    codes = ("token_expired",)


class TokenNotYetValid(Unauthenticated):
    """The token's `nbf` or `iat` has not come yet."""

    codes = ("token_not_yet_valid",)


class TokenInvalid(Unauthenticated):
    """Not a token of the server's issuer, or one that says too little, too much or nonsense."""

    codes = ("token_invalid",)


class TenantNotActive(Unauthenticated):
    """The tenant that the token names is unknown or suspended."""

    codes = ("tenant_not_active",)


class Forbidden(BerthError):
    """The key is good but not for this."""

    codes = ("forbidden",)


class Invalid(BerthError):
    """The request's content is wrong; `extra["errors"]` names the fields where known."""

    codes = ("invalid",)


class Malformed(Invalid):
    """The request cannot be read."""

    codes = ("malformed",)


class InvalidCursor(Invalid):
    """The cursor is not one of the server's."""

    codes = ("invalid_cursor",)


class TooLarge(Invalid):
    """The body is larger than the server takes."""

    codes = ("too_large",)


class HeadTooLarge(Invalid):
    """The request line and header fields are larger than the server takes."""

    codes = ("head_too_large",)


class MethodNotAllowed(Invalid):
    """The path exists, but not with this method: this client and the server are of different releases."""

    codes = ("method_not_allowed",)


class SshKeyNotFound(Invalid):
    """One of the SSH keys named is not the tenant's."""

    codes = ("ssh_key_not_found",)
    kept = True


class ImageUnavailable(Invalid):
    """The image is unknown, retired, not offered for this SKU and region, or without cloud-init for user data."""

    codes = ("image_unavailable",)
    kept = True


class TtlOutOfRange(Invalid):
    """The TTL is not within the deployment's bounds; `extra["ttl_seconds_max"]` is the upper one."""

    codes = ("ttl_out_of_range",)
    kept = True


class WindowInvalid(Invalid):
    """The window is over, or begins too far away."""

    codes = ("window_invalid",)
    kept = True


class SlotOverflow(Invalid):
    """A deadline or retirement would lie beyond the representable range."""

    codes = ("slot_overflow",)
    kept = True


class RequestTimeout(BerthError):
    """The request did not reach the server whole in time."""

    codes = ("request_timeout",)


class Internal(BerthError):
    """The server failed with an unexpected error."""

    codes = ("internal",)


class Unavailable(BerthError):
    """The server cannot be asked."""

    codes = ("unreachable",)


class DatabaseUnavailable(Unavailable):
    """The server cannot ask its database."""

    codes = ("database_unavailable",)


class RestoreInProgress(DatabaseUnavailable):
    """The server's database is being restored to an earlier moment; nothing is served until then."""

    codes = ("restore_in_progress",)


class CertificatePending(Unavailable):
    """The issuer has not signed the recorded request for a node certificate yet."""

    codes = ("certificate_pending",)


class Overloaded(BerthError):
    """The server sheds load; the request was not done."""

    codes = ("overloaded",)


class ResourceTableFull(Overloaded):
    """As many resources are registered as the deployment allows."""

    codes = ("resource_table_full",)


class ReservationTableFull(Overloaded):
    """As many reservations are live as the deployment allows."""

    codes = ("reservation_table_full",)


class ExpirationIndexFull(Overloaded):
    """As many holds wait for their deadline as the deployment allows."""

    codes = ("expiration_index_full",)


class OperationTableFull(Overloaded):
    """There is no room to remember another operation's outcome, so none was begun."""

    codes = ("operation_table_full",)


class UnreadableAnswer(BerthError):
    """The server answered something that this client cannot read; what it says was done may well be."""

    codes = ("unreadable_answer",)
