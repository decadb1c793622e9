"""What can go wrong, by name. Every error says what became of the request: `not_done`, `in_progress` or `unknown`.

The names follow the `code` of the server's problem documents (RFC 9457; docs/http-api.md), so a caller catches the
situation it can act on and leaves the rest to `BerthError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class BerthError(Exception):
    """A request was refused, failed, or nobody knows. `extra` holds every further member of the problem document."""

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int | None = None,
        outcome: str = "not_done",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.outcome = outcome
        self.extra: dict[str, Any] = dict(extra or {})

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the server asked to wait, if it did."""
        value = self.extra.get("retry_after_seconds")
        return float(value) if isinstance(value, int | float) else None


class SkuUnavailable(BerthError):
    """Nothing could be placed; `reason` says why (docs/http-api.md lists the reasons)."""

    @property
    def reason(self) -> str:
        """The stable reason, such as `busy_now` or `no_node_large_enough`."""
        return str(self.extra.get("reason", "unknown"))


class QuotaExceeded(BerthError):
    """The tenant's own limit is reached."""


class NotFound(BerthError):
    """There is no such object, or it is somebody else's."""


class Unauthenticated(BerthError):
    """The key or token is missing, wrong, revoked, expired (`code` says which)."""


class Forbidden(BerthError):
    """The key is good but not for this."""


class InvalidState(BerthError):
    """The object's state does not allow it; `extra["state"]` is the current one."""


class OperationConflict(BerthError):
    """The idempotency key was used before with other content."""


class OperationInProgress(BerthError):
    """Another request with the same key still runs."""


class SecretNotShownAgain(BerthError):
    """Done before under another token; `extra["answer"]` is what it made, without its secret."""


class Invalid(BerthError):
    """The request's content is wrong; `extra["errors"]` names the fields where known."""


class NodeInUse(BerthError):
    """Something holds units of the node; `extra["claims"]` names each and what to do about it."""


class AlreadyExists(BerthError):
    """An object with this name is already there."""


class OutcomeUnknown(BerthError):
    """The write may or may not have happened; repeat it with the key in `extra["idempotency_key"]` to find out."""


class Unavailable(BerthError):
    """The server, or its database, cannot be asked."""


class Overloaded(BerthError):
    """The server sheds load; the request was not done."""


class WaitTimeout(BerthError):
    """The state waited for did not come in time; `extra["allocation"]` is the last answer."""


class StateUnreachable(BerthError):
    """The allocation ended in a final state other than those waited for; `extra["allocation"]` is the last answer."""


BY_CODE: dict[str, type[BerthError]] = {
    "sku_unavailable": SkuUnavailable,
    "quota_exceeded": QuotaExceeded,
    "not_found": NotFound,
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "invalid_state": InvalidState,
    "node_in_use": NodeInUse,
    "already_exists": AlreadyExists,
    "operation_conflict": OperationConflict,
    "operation_in_progress": OperationInProgress,
    "secret_not_shown_again": SecretNotShownAgain,
    "invalid": Invalid,
    "malformed": Invalid,
    "invalid_cursor": Invalid,
    "too_large": Invalid,
    "ssh_key_not_found": Invalid,
    "image_unavailable": Invalid,
    "outcome_unknown": OutcomeUnknown,
    "database_unavailable": Unavailable,
    "overloaded": Overloaded,
}
BY_STATUS: dict[int, type[BerthError]] = {
    400: Invalid, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 422: Invalid, 502: Unavailable, 503: Unavailable,
    504: Unavailable,
}  # fmt: skip
KNOWN_MEMBERS = frozenset({"type", "title", "status", "code", "detail", "outcome"})


def error_from_problem(status: int, problem: Mapping[str, Any], retry_after: str | None) -> BerthError:
    """The named error for a problem document; unknown codes fall back to the status, then to `BerthError`."""
    code = str(problem.get("code") or f"http_{status}")
    extra = {key: value for key, value in problem.items() if key not in KNOWN_MEMBERS}
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        # RFC 9110 also allows a date there; Berth sends whole seconds.
        extra["retry_after_seconds"] = float(retry_after)
    kind = BY_CODE.get(code) or BY_STATUS.get(status, BerthError)
    outcome = str(problem.get("outcome") or ("unknown" if status >= 500 else "not_done"))
    detail = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
    return kind(detail, code=code, status=status, outcome=outcome, extra=extra)
