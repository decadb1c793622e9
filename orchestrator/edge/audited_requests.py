"""Records requests of authenticated callers that no operation records: refusals that are not stored, and privileged reads.

A business refusal is stored with its operation, whose trigger writes the audit row. What remains is queued here, for a task that
writes it (orchestrator/http/audited/recorder.py): a refused write, a read refused with 403, and an operator's read of tenants'
objects; a WebSocket counts as a read. Requests beyond the limits of a principal (429) and failures of Berth (5xx) are metrics,
not audit. Refusals of callers without a valid credential are counted, as are those of one caller beyond a bound each minute.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from orchestrator.http.asgi import App, Message, Receive, Scope, Send
from orchestrator.http.audited.callers import audited_caller, method_of
from orchestrator.http.problem_documents import REFUSAL
from orchestrator.http.services import CALLER, Services, source_of
from orchestrator.problems import Problem, TooManyFailures, Unauthenticated
from orchestrator.tenants.principals import Principal

FORBIDDEN: Final = 403
SWITCHING: Final = 101
NOT_RECORDED: Final = frozenset({429})
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
BEGINNINGS: Final = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
OF_NO_TENANT: Final = re.compile(
    r"/(ok|live|metrics|docs|openapi\.json|asyncapi\.json|v1/version"
    r"|api/v1/(me|skus|regions|images|availability|operations/[^/]+)"
    r"|api/v1/resources(/[^/]+)?"
    r"|api/v1/admin/(images|pools|hardware|repairs|sites|firmware-lists|bmcs|consumers|approvals|maintenance)(?!/plan)(/.*)?"
    r"|api/v1/(admin/)?audit"
    r"|api/v1/admin/nodes"
    r"|api/v1/admin/nodes/[^/]+/(attestation|topology|health|burn-ins|deploy-system|gpu-resets|quarantines|bmc)(/.*)?)/?"
)
"""Paths whose reads by operators are not recorded: they show the fleet, the catalogue or the caller. Every other read is.

Reads of the audit are not: whatever follows it, page by page, would find its own reads for ever.
"""


class AuditedRequests:
    """Wraps the public application inside the edge; lets every response pass as it is."""

    def __init__(self, app: App, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; queue its audit row before its response begins, if nothing else records it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def recording(message: Message) -> None:
            if message["type"] in BEGINNINGS:
                # A socket that is accepted only to say its refusal has the refusal's status.
                refusal: Problem | None = scope["state"].get(REFUSAL)
                status = message.get("status", SWITCHING if refusal is None else refusal.status)
                self._record(scope, status, "ok" if refusal is None else refusal.code, refusal)
            await send(message)

        try:
            await self._app(scope, receive, recording)
        except Problem as problem:
            self._record(scope, problem.status, problem.code, problem)
            raise

    def _record(self, scope: Scope, status: int, code: str, refusal: Problem | None) -> None:
        caller: Principal | None = scope["state"].get(CALLER)
        recorder = self._services.recorder
        if caller is None:
            if isinstance(refusal, Unauthenticated | TooManyFailures):
                recorder.count_stranger(source_of(scope))
            return
        if not _is_recorded(scope, caller, status, refusal):
            return
        row = audited_caller(scope, caller)
        row |= {"at": datetime.now(UTC).isoformat(), "status": status, "code": code}
        key = scope["state"].get("operation_key")
        if key is not None:
            row |= {"operation_key": key}
        if refusal is None:
            recorder.record(row)
        else:
            recorder.record_refusal(row)


def is_read_of_tenants(path: str) -> bool:
    """Whether a read of this path shows what belongs to tenants, so that an operator's is recorded."""
    return OF_NO_TENANT.fullmatch(path) is None


def _is_recorded(scope: Scope, caller: Principal, status: int, refusal: Problem | None) -> bool:
    is_read = method_of(scope) in SAFE_METHODS
    if refusal is not None:
        return (400 <= status < 500 and status not in NOT_RECORDED) and (not is_read or status == FORBIDDEN)
    return is_read and status < 400 and caller.tenant_id is None and is_read_of_tenants(scope["path"])
