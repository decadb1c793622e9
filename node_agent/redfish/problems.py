"""The errors of a BMC, each with a stable code and the operator's next step. None carries a password, a token or a medium's URL.

A caller decides by class: `OutcomeUnknown` never means failed, `Busy` and `Unreachable` mean that nothing was done.
"""

from __future__ import annotations

from typing import ClassVar


class BmcProblem(Exception):
    """A request to a BMC that did not end as asked; `detail` is one sentence with the value or bound that was wrong."""

    code: ClassVar[str] = "bmc_problem"
    next_step: ClassVar[str] = "Read the agent's log."

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Unreachable(BmcProblem):
    """No connection, or a read without an answer: nothing was changed."""

    code = "bmc_unreachable"
    next_step = "Check the BMC's address, its network and its power; then try again."


class CredentialsRefused(BmcProblem):
    """The BMC does not accept the user name and password, or the account may not do this: nothing was changed."""

    code = "bmc_credentials_refused"
    next_step = "Try the previous password; else set the account on the BMC by hand and store the password again."


class CertificateChanged(BmcProblem):
    """The BMC's TLS certificate is not the pinned one: nothing was sent. `seen_sha256` is the certificate that was offered."""

    code = "bmc_certificate_changed"
    next_step = "Compare the fingerprint at the BMC itself; pin the new one only if it was replaced on purpose."

    def __init__(self, detail: str, seen_sha256: str) -> None:
        super().__init__(detail)
        self.seen_sha256 = seen_sha256


class NotSupported(BmcProblem):
    """The BMC offers no such resource, action or link: nothing was changed."""

    code = "bmc_not_supported"
    next_step = "Update the BMC's firmware, or write a vendor quirk if it offers this in another way."


class ValueNotAllowed(BmcProblem):
    """The BMC does not list this value as allowed, so it was not sent; or it answered 400 to it. Nothing was changed."""

    code = "bmc_value_not_allowed"
    next_step = "Use one of the values that the error lists."


class Conflict(BmcProblem):
    """The resource changed between read and write twice in a row, or the BMC answered 409: nothing was changed."""

    code = "bmc_conflict"
    next_step = "Find out which other client changes this BMC; then try again."


class OutcomeUnknown(BmcProblem):
    """A command was sent and its effect is not known: no answer, a broken connection, 5xx, or a task without an end."""

    code = "bmc_outcome_unknown"
    next_step = (
        "Read the state again until it stays unchanged for longer than the BMC may queue a command; then decide."
    )


class Busy(BmcProblem):
    """The BMC answered 503 or 429: it did not take the request. `retry_after_seconds` as it asked, at most 300."""

    code = "bmc_busy"
    next_step = "Try again later."

    def __init__(self, detail: str, retry_after_seconds: float) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class NotSettled(BmcProblem):
    """The state was not the expected one for long enough before the deadline. `last_seen` is the newest state that was read."""

    code = "bmc_not_settled"
    next_step = "Read the power state again; force the machine off if it ignores a graceful shutdown."

    def __init__(self, detail: str, last_seen: str) -> None:
        super().__init__(detail)
        self.last_seen = last_seen


class NotBack(BmcProblem):
    """The BMC was reset and did not answer again in time, or not to the same credentials."""

    code = "bmc_not_back"
    next_step = "Check the BMC's network and power, and its account; then describe the machine again."


class WithoutEffect(BmcProblem):
    """The BMC reported success, and what was read back is as before."""

    code = "bmc_without_effect"
    next_step = "Reset the BMC and try again; quarantine the machine if it happens again."


class TaskFailed(BmcProblem):
    """The BMC's task for this command ended as failed, cancelled or interrupted; its messages are in `detail`."""

    code = "bmc_task_failed"
    next_step = "Read the task's messages and the BMC's event log."


class AnswerUnreadable(BmcProblem):
    """An answer is too large, not JSON, of another shape, or redirects to another origin. After a command: `OutcomeUnknown`."""

    code = "bmc_answer_unreadable"
    next_step = "Read the resource named in the error by hand; write a vendor quirk if its shape is the vendor's own."


PROBLEMS: tuple[type[BmcProblem], ...] = (
    Unreachable,
    CredentialsRefused,
    CertificateChanged,
    NotSupported,
    ValueNotAllowed,
    Conflict,
    OutcomeUnknown,
    Busy,
    NotSettled,
    NotBack,
    WithoutEffect,
    TaskFailed,
    AnswerUnreadable,
)
