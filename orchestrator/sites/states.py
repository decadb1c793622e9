"""States of agents of sites, and outcomes of tasks about BMCs. Pure."""

from __future__ import annotations

from enum import StrEnum


class AgentState(StrEnum):
    """The state of an agent of a site; `retired` means revoked."""

    REGISTERED = "registered"
    ACTIVE = "active"
    RETIRED = "retired"


class BmcTaskOutcome(StrEnum):
    """How a task about a BMC ended; `unknown`: it was handed out, or a command was sent, and its effect is not known."""

    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"
