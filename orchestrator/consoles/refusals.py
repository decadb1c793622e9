"""Refusals of consoles, before the upgrade of the WebSocket."""

from __future__ import annotations

from typing import Self

from orchestrator.problems import Problem


class ConsoleBusy(Problem):
    """Another session types into this console."""

    status, code, title = 409, "console_busy", "Console busy"
    retry_after_seconds = 5

    @classmethod
    def now(cls) -> Self:
        """The refusal of a second session."""
        return cls("another session is attached to this console; end it first, or retry when it has ended")


class ConsoleUnsupported(Problem):
    """The node's agent is of a version that serves no consoles."""

    status, code, title = 409, "console_unsupported", "Console not supported"

    @classmethod
    def by(cls, version: str | None) -> Self:
        """The refusal for a node with an agent of this version."""
        return cls(f"the node's agent (version {version}) serves no consoles; the operator must upgrade it")


class ConsoleNotSetUp(Problem):
    """The operator has pinned no host key of the SSH server of the machine's BMC."""

    status, code, title = 409, "console_not_set_up", "Console not set up"

    @classmethod
    def now(cls) -> Self:
        """The refusal for a machine without a pinned key."""
        return cls(
            "the operator has not set up the serial console of this machine: berth node bmc set --console-host-key"
        )


class ConsoleLogAbsent(Problem):
    """A BMC keeps no log of the serial console."""

    status, code, title = 409, "console_log_absent", "No console log"

    @classmethod
    def of_machine(cls) -> Self:
        """The refusal of the log of a machine."""
        return cls(
            "nothing records the serial console of a bare-metal machine; attach to it: berth alloc console --attach"
        )


class ConsoleUnavailable(Problem):
    """The process serves no consoles, or the node's agent did not connect to it in time."""

    status, code, title = 503, "console_unavailable", "Console unavailable"
    retry_after_seconds = 5


class TooManyConsoles(Problem):
    """The tenant, or the process, has as many sessions as it may."""

    status, code, title = 429, "too_many_consoles", "Too many consoles"
    retry_after_seconds = 5

    @classmethod
    def of_tenant(cls, limit: int) -> Self:
        """The refusal at the bound of a tenant."""
        return cls(f"this tenant has {limit} console sessions open, which is the most; end one, or retry later")

    @classmethod
    def of_process(cls, limit: int) -> Self:
        """The refusal at the bound of a process."""
        return cls(
            f"this process serves {limit} console sessions, which is the most; retry later or on another replica"
        )
