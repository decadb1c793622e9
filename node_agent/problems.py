"""Errors that end the agent. Each message is one sentence for the operator."""

from __future__ import annotations


class AgentProblem(Exception):
    """The agent cannot go on; the process ends with status 1 and this sentence."""


class CannotStart(AgentProblem):
    """Something needed at start is missing, taken or did not answer in time."""


class IdentityLost(AgentProblem):
    """The certificate has expired or is refused, and no unused enrolment token is there to enrol again."""


class JournalUnwritable(AgentProblem):
    """The journal could not be written or synced: without it no task may run."""
