"""Text messages of a console's socket and its close codes (docs/reference/fleet/console.md). Binary ones are the console."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

import orjson

from berth.process.json_objects import JsonObject
from orchestrator.consoles.rules import EndReason
from orchestrator.problems import Problem
from orchestrator.times import rfc3339

PROTOCOL: Final = "berth.console.v1"
NORMAL, POLICY, FAILED, RESTART = 1000, 1008, 1011, 1012
STATUS_CODES: Final = 4000
"""Added to the HTTP status of a refusal for its close code."""
CLOSING: Final[dict[EndReason, int]] = {
    EndReason.STOPPING: RESTART,
    EndReason.FAILED: FAILED,
    EndReason.MESSAGE_REFUSED: POLICY,
    EndReason.UNAUTHENTICATED: 4401,
    EndReason.AGENT_ABSENT: 4503,
    EndReason.AGENT_LOST: 4503,
    EndReason.PROCESS_LOST: 4503,
    EndReason.BMC_UNREACHABLE: 4503,
}
"""Close codes other than 1000."""
DETAILS: Final[dict[EndReason, str]] = {
    EndReason.TENANT_ENDED: "the client ended the session",
    EndReason.GUEST_ENDED: "the guest stopped, or a task of its allocation began",
    EndReason.LOG_SENT: "the log was sent",
    EndReason.NO_GUEST: "no guest runs for this allocation on its node",
    EndReason.NO_CONSOLE: "the node's driver has no console for this guest, or could not open it",
    EndReason.SUPERSEDED: "a newer session took this console over",
    EndReason.AGENT_ABSENT: "the node's agent did not connect in time; retry later",
    EndReason.AGENT_LOST: "the connection to the node's agent was lost; attach again",
    EndReason.IDLE: "nothing was typed and nothing printed for too long",
    EndReason.DEADLINE: "the longest time of a session is over; attach again",
    EndReason.RELEASED: "the allocation is no longer active",
    EndReason.UNAUTHENTICATED: "the credential is no longer valid",
    EndReason.SLOW_CLIENT: "the client read nothing for too long",
    EndReason.MESSAGE_REFUSED: "the client sent a message that is no binary one",
    EndReason.STOPPING: "this process is stopping; attach again",
    EndReason.PROCESS_LOST: "this process did not confirm the session in time; attach again",
    EndReason.FAILED: "something failed that should not have; it has been logged",
    EndReason.CONSOLE_CLOSED: "the machine's BMC closed the console, or stopped answering; attach again",
    EndReason.BMC_UNREACHABLE: "the machine's BMC did not answer in time; retry later",
    EndReason.BMC_CREDENTIALS_REFUSED: "the machine's BMC refuses its account; the operator must set it again",
    EndReason.BMC_CERTIFICATE_CHANGED: "the machine's BMC shows another certificate; the operator must compare it",
    EndReason.BMC_HOST_KEY_CHANGED: "the machine's BMC shows another SSH host key; the operator must compare it",
    EndReason.BMC_CONSOLE_MISSING: "the machine's BMC announces no serial console over SSH; use SSH to the machine",
    EndReason.BMC_CONSOLE_SHARED: "the machine's BMC shares the console with its command line; the operator must allow it",
    EndReason.BMC_CONSOLE_REFUSED: "the machine's BMC refuses the console: another client may have it; retry later",
    EndReason.BMC_HOT_KEY_UNKNOWN: "the keys that leave the console are not known; the operator must ask for support",
}


def waiting(session_id: UUID) -> str:
    """The first message: the session is open, and its node was asked to connect."""
    return _text({"type": "waiting", "session_id": str(session_id)})


def begin(session_id: UUID, ends_at: datetime) -> str:
    """The node's agent is connected: binary messages flow from here on, until `ends_at` at the latest."""
    return _text({"type": "begin", "session_id": str(session_id), "ends_at": rfc3339(ends_at)})


def dropped(count: int) -> str:
    """So many bytes of output are missing here, because the client was too slow."""
    return _text({"type": "dropped", "bytes": count})


def ended(reason: EndReason) -> str:
    """The last message."""
    return _text({"type": "ended", "reason": reason.value, "detail": DETAILS[reason]})


def error(problem: Problem) -> str:
    """The only message to a client that cannot see why an upgrade is refused."""
    members = problem.document()
    return _text({"type": "error", **{name: members[name] for name in members.keys() - {"type", "title"}}})


def _text(members: JsonObject) -> str:
    return orjson.dumps(members).decode()
