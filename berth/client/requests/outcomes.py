"""Settles a write whose response was lost, from the server's record of its key. Pure."""

from __future__ import annotations

import json
from typing import TypeVar

from berth.client.calls.call import Call
from berth.client.errors import BerthError, OperationInProgress, OutcomeUnknown, Unavailable
from berth.client.problems import error_from_problem
from berth.client.requests.exchange import validated
from berth.client.reservation_models import Operation

Result = TypeVar("Result")


def result_of(call: Call[Result], operation: Operation, last: BerthError) -> Result:
    """The result of a write, from the record of its operation; `last` is the error of its last attempt.

    Raises the stored refusal; `OperationInProgress` while it runs; what `last` says, as not done, where the key is unknown
    (asking made sure that it stays so); `OutcomeUnknown` where its record is no longer kept.
    """
    if operation.state == "committed":
        return validated(call, json.dumps(operation.result).encode(), operation.status)
    if operation.state == "rejected":
        problem = operation.result if isinstance(operation.result, dict) else {}
        raise error_from_problem(operation.status or 409, {"code": operation.code, **problem}, None)
    if operation.state == "pending":
        raise OperationInProgress(
            "the request still runs; ask again with its key", code="operation_in_progress", outcome="in_progress"
        )
    if operation.state == "unknown":
        raise _not_done(last)
    raise undecided(
        f"{last.detail}; the record of its outcome is no longer kept: check the object it would have changed", last
    )


def undecided(detail: str, last: BerthError) -> OutcomeUnknown:
    """The error for a write whose outcome could not be determined."""
    return OutcomeUnknown(detail, code="outcome_unknown", status=last.status, outcome="unknown", extra=last.extra)


def _not_done(last: BerthError) -> BerthError:
    if last.outcome == "not_done":
        return last
    detail = f"{last.detail}; the server has since reported that it was not done, and will not be under this key"
    return Unavailable(detail, code="unreachable", status=last.status, outcome="not_done", extra=last.extra)
