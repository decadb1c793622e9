"""What a node reports of each guest, and the policy by which the agent starts a guest again."""

from __future__ import annotations

from enum import StrEnum


class RestartPolicy(StrEnum):
    """Whether the agent starts a guest again that ended although it should run."""

    ALWAYS = "always"
    NEVER = "never"


class GuestReport(StrEnum):
    """What the agent finds of a guest that is up by its record."""

    RUNNING = "running"
    UNREACHABLE = "unreachable"
    """It runs, and its SSH server has not answered for a while."""
    STOPPED = "stopped"
    """Stopped by the verb `stop`."""
    DOWN = "down"
    """It should run and does not; the agent is about to start it again."""
    ENDED = "ended"
    """It should run and does not; the agent does not start it again, by policy or after its last attempt."""
