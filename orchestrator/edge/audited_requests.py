"""Records requests of authenticated callers that no operation records: refusals that are not stored, and privileged reads.

A business refusal is stored with its operation, whose trigger writes the audit row. What remains is written here, at once and in
a separate transaction: a refused write, a read refused with 403, and an operator's read of tenants' objects. Each was
admitted within the limits of its principal; requests beyond them (429) and failures of Berth (5xx) are metrics, not audit.
"""

from __future__ import annotations

from typing import Final

import structlog

from orchestrator.audit.store import record_request
from orchestrator.http.asgi import App, Message, Receive, Scope, Send
from orchestrator.http.audited.callers import audited_caller
from orchestrator.http.authentication import CALLER
from orchestrator.http.metrics import AUDIT_LOST
from orchestrator.http.problem_documents import REFUSAL
from orchestrator.http.services import Services
from orchestrator.problems import Problem
from orchestrator.tenants.principals import Principal

log = structlog.get_logger("orchestrator.api")
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
        """Serve a request; record it before its response begins, if nothing else does."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def recording(message: Message) -> None:
            if message["type"] == "http.response.start":
                refusal: Problem | None = scope["state"].get(REFUSAL)
                await self._record(scope, message["status"], "ok" if refusal is None else refusal.code, refusal)
            await send(message)

        try:
            await self._app(scope, receive, recording)
        except Problem as problem:
            await self._record(scope, problem.status, problem.code, problem)
            raise

    async def _record(self, scope: Scope, status: int, code: str, refusal: Problem | None) -> None:
        caller: Principal | None = scope["state"].get(CALLER)
        if caller is None or not _is_recorded(scope, caller, status, refusal):
            return
        try:
            async with self._services.context.database.transaction() as tx:
                await record_request(
                    tx, audited_caller(scope, caller), status=status, code=code,
                    operation_key=scope["state"].get("operation_key"),
                )  # fmt: skip
        except Exception as error:
            # The response is decided already, and a database that cannot be reached must not change it.
            AUDIT_LOST.inc()
            log.error("audit_lost", path=scope["path"], status=status, code=code, exc_info=error)


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
