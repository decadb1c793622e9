"""Records requests of authenticated callers that no operation records: refusals that are not stored, and privileged reads.

A business refusal is stored with its operation, whose trigger writes the audit row. What remains is queued here, for a task that
writes it (orchestrator/http/audited/recorder.py): a refused write, a read refused with 403, and an operator's read of tenants'
objects. Each was admitted within the limits of its principal; requests beyond them (429) and failures of Berth (5xx) are
metrics, not audit. Refusals of callers without a valid credential are counted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from orchestrator.http.asgi import App, Message, Receive, Scope, Send
from orchestrator.http.audited.callers import audited_caller
from orchestrator.http.problem_documents import REFUSAL
from orchestrator.http.services import CALLER, Services, source_of
from orchestrator.problems import Problem, TooManyFailures, Unauthenticated
from orchestrator.tenants.principals import Principal

FORBIDDEN: Final = 403
NOT_RECORDED: Final = frozenset({429})
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
TENANTS_OBJECTS: Final = (
    "/api/v1/allocations", "/api/v1/reservations", "/api/v1/ssh-keys", "/api/v1/usage", "/api/v1/balance", "/api/v1/webhooks",
    "/api/v1/admin/allocations", "/api/v1/admin/tenants", "/api/v1/admin/api-keys",
)  # fmt: skip
"""Paths whose reads by operators are recorded."""


class AuditedRequests:
    """Wraps the public application inside the edge; lets every response pass as it is."""

    def __init__(self, app: App, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; queue its audit row before its response begins, if nothing else records it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def recording(message: Message) -> None:
            if message["type"] == "http.response.start":
                refusal: Problem | None = scope["state"].get(REFUSAL)
                self._record(scope, message["status"], "ok" if refusal is None else refusal.code, refusal)
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
        recorder.record(row if key is None else row | {"operation_key": key})


def _is_recorded(scope: Scope, caller: Principal, status: int, refusal: Problem | None) -> bool:
    if refusal is not None:
        return (400 <= status < 500 and status not in NOT_RECORDED) and (
            scope["method"] not in SAFE_METHODS or status == FORBIDDEN
        )
    path: str = scope["path"]
    return (
        scope["method"] in SAFE_METHODS
        and status < 400
        and caller.tenant_id is None
        and any(path == one or path.startswith(f"{one}/") for one in TENANTS_OBJECTS)
    )
