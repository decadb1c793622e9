"""`GET /api/v1/allocations/{id}/console` and `…/console/attach`: the log of a serial console, and the console itself.

Operators have neither: what a guest prints is its tenant's. The Origin header is not checked, for the reason that notifications
name: a browser adds no credential by itself.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, NoReturn
from uuid import UUID

from fastapi import APIRouter, Query, Request, WebSocket
from fastapi.responses import Response
from pydantic import ValidationError

from node_agent.wire.console import DATA, END, ConsoleEnd, FrameRefused, read_frame
from orchestrator.consoles import messages, metrics
from orchestrator.consoles.hub import Session
from orchestrator.consoles.refusals import ConsoleUnavailable
from orchestrator.consoles.rules import EndReason, reason_of_agent
from orchestrator.consoles.schemas import ConsoleLog, ConsoleLogQuery
from orchestrator.consoles.sockets import ConsoleSocket
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller, principal_behind, require_unchanged
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.problem_documents import REFUSAL
from orchestrator.http.rate_limits import RequestClass
from orchestrator.http.services import CALLER, Parts, Services, services_for, source_of
from orchestrator.http.sockets.credentials import credential_of
from orchestrator.http.sockets.upgrades import UpgradeRequired
from orchestrator.problems import Invalid, InvalidState, NotFound, Problem
from orchestrator.tenants.required_roles import check_roles, requires, without_roles
from orchestrator.tenants.roles import NO_OPERATOR, TENANT_WRITERS

router = APIRouter(prefix="/allocations", tags=["allocations"], responses=PROBLEM_RESPONSES)


@router.get("/{allocation_id}/console", response_model=ConsoleLog)
@requires(tenant=TENANT_WRITERS, operator=NO_OPERATOR)
async def read_console_log(
    allocation_id: UUID, query: Annotated[ConsoleLogQuery, Query()], request: Request, caller: Caller, parts: Parts
) -> Response:
    """A part of the log of an active allocation's serial console, as its node has it now; by default its end."""
    parts.limits.take_rate(caller.scope, RequestClass.STREAM)
    opening = parts.consoles.session(
        parts.context, caller, allocation_id, "log", request.state.request_id, query.offset, query.bytes_max
    )
    async with opening as session:
        data, offset = await _log_of(session, query.bytes_max, parts.settings.console_dial_seconds)
    document = {
        "allocation_id": str(allocation_id),
        "offset": offset,
        "next_offset": offset + len(data),
        "data": base64.b64encode(data).decode(),
    }
    return json_response(document)


async def _log_of(session: Session, bytes_max: int, dial_seconds: float) -> tuple[bytes, int]:
    """What the agent sends, and where it begins. Raises `ConsoleUnavailable`, `InvalidState`."""
    data = bytearray()
    try:
        async with asyncio.timeout(2 * dial_seconds):
            link = await asyncio.shield(session.link)
            while (found := await read_frame(link.reader)) is not None:
                kind, payload = found
                if kind == DATA and len(data) + len(payload) <= bytes_max:
                    data += payload
                    session.to_tenant += len(payload)
                    metrics.BYTES.labels("to_tenant").inc(len(payload))
                elif kind == END:
                    end = ConsoleEnd.model_validate_json(payload)
                    reason = reason_of_agent(end.reason)
                    if reason is EndReason.LOG_SENT and end.offset is not None:
                        session.finish(reason)
                        return bytes(data), end.offset
                    session.finish(EndReason.AGENT_LOST if reason is EndReason.LOG_SENT else reason)
                    break
                else:
                    break
        session.finish(EndReason.AGENT_LOST)
    except TimeoutError:
        session.finish(EndReason.AGENT_LOST if session.link.done() else EndReason.AGENT_ABSENT)
    except (OSError, FrameRefused, ValidationError):
        session.finish(EndReason.AGENT_LOST)
    reason = session.ended.result()
    if reason in (EndReason.NO_GUEST, EndReason.NO_CONSOLE, EndReason.RELEASED):
        raise InvalidState(messages.DETAILS[reason], state=reason.value)
    raise ConsoleUnavailable(messages.DETAILS[reason])


@router.get("/{allocation_id}/console/attach", include_in_schema=False, response_model=None)
@without_roles
async def plain(allocation_id: str) -> NoReturn:
    """Refuse a request without an upgrade."""
    raise UpgradeRequired("this path requires a WebSocket (RFC 6455); send `Upgrade: websocket`, version 13")


@router.websocket("/{allocation_id}/console/attach")
@requires(tenant=TENANT_WRITERS, operator=NO_OPERATOR, writes=True)
async def attach(socket: WebSocket, allocation_id: str) -> None:
    """Join the tenant with the serial console of an active allocation.

    A refusal is an HTTP response. With a credential in a subprotocol it is the first message of an accepted socket, which is
    then closed, because a browser does not show its page why an upgrade was refused.
    """
    parts: Services = socket.app.state.services
    credential, spoken = credential_of(socket, messages.PROTOCOL)
    try:
        bearer = credential or socket.headers.get("authorization", "")
        caller = await principal_behind(parts.credentials, parts.context.database, bearer, source_of(socket.scope))
        socket.scope.setdefault("state", {})[CALLER] = caller
        parts = services_for(parts, socket.scope)
        parts.limits.take_rate(caller.scope, RequestClass.STREAM)
        check_roles(attach, caller)
        opening = parts.consoles.session(
            parts.context, caller, _id_of(socket, allocation_id), "attach", socket.scope["state"]["request_id"]
        )
        async with opening as session:
            await socket.accept(spoken)
            served = ConsoleSocket(
                socket,
                session,
                parts.consoles.limits,
                lambda: require_unchanged(parts, bearer, caller, attach),
            )
            await served.serve()
    except Problem as refusal:
        if credential is None:
            raise
        socket.scope.setdefault("state", {})[REFUSAL] = refusal
        await socket.accept(spoken)
        await socket.send_text(messages.error(refusal))
        await socket.close(messages.STATUS_CODES + refusal.status, refusal.code)


def _id_of(socket: WebSocket, allocation_id: str) -> UUID:
    """The allocation's id. Raises `NotFound`; `Invalid` for any query parameter."""
    if socket.query_params:
        name = next(iter(socket.query_params))
        raise Invalid(
            "this path has no query parameters", errors=[{"field": f"query.{name}", "message": "is not known"}]
        )
    try:
        return UUID(allocation_id)
    except ValueError as error:
        raise NotFound(f"there is no allocation {allocation_id}") from error
