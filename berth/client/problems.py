"""The named error for a problem document."""

from __future__ import annotations

from collections.abc import Iterator

import berth.client.approvals
import berth.client.consoles.models
import berth.client.hardware.adoptions
import berth.client.hardware.attestations
import berth.client.hardware.deploy_systems
import berth.client.hardware.faults
import berth.client.hardware.sites
import berth.client.hardware.sizes
import berth.client.health
import berth.client.limit_errors
import berth.client.log_errors
import berth.client.maintenance
import berth.client.retention_errors
import berth.client.tenant_errors
import berth.client.topologies
import berth.client.waiting_errors
import berth.client.webhook_errors
import berth.client.wipe_certificates  # noqa: F401 - so that their names are among those below
from berth.client.errors import BerthError, Forbidden, Invalid, NotFound, Unauthenticated, Unavailable
from berth.process.json_objects import JsonMapping


def _below(kind: type[BerthError]) -> Iterator[type[BerthError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


BY_CODE: dict[str, type[BerthError]] = {
    code: kind for kind in _below(BerthError) for code in vars(kind).get("codes", ())
}
BY_STATUS: dict[int, type[BerthError]] = {
    400: Invalid, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 422: Invalid, 502: Unavailable, 503: Unavailable,
    504: Unavailable,
}  # fmt: skip
KNOWN_MEMBERS = frozenset({"type", "title", "status", "code", "detail", "outcome"})


def error_from_problem(status: int, problem: JsonMapping, retry_after: str | None) -> BerthError:
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
