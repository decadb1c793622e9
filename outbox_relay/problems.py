"""Errors of the relay, grouped by what the caller must do."""

from __future__ import annotations

from typing import Literal

Server = Literal["postgres", "nats"]


class RelayProblem(Exception):
    """The relay cannot continue and the process ends; the message names the reason and what to do."""


class PublishingStopped(RelayProblem):
    """Further publishing would damage the stream. `reason` is a stable word for metrics and `/ok`.

    The relay stays up and examines both servers again, until an operator has removed the cause.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class ServerUnavailable(Exception):
    """A server does not respond, or is temporarily unable to: connect again after a backoff.

    Whether the last request was stored is unknown; the new connection finds out.
    """

    def __init__(self, server: Server, why: str) -> None:
        super().__init__(f"{server}: {why}")
        self.server: Server = server
        self.why = why


class StoresNothing(ServerUnavailable):
    """NATS responds to requests and stores nothing: its disk is full, or was full and NATS was not restarted."""


def first_line(error: BaseException) -> str:
    """One line that names an error: its first line of text, or its type when it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
