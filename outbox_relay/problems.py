"""What can go wrong in the relay, by what has to be done about it."""

from __future__ import annotations

from typing import Literal

Server = Literal["postgres", "nats"]


class RelayProblem(Exception):
    """The relay cannot go on and the process ends; the message is one sentence that says why and what to do."""


class PublishingStopped(RelayProblem):
    """To publish on would harm the log on NATS. `reason` is a stable word for metrics."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class ServerUnavailable(Exception):
    """A server does not answer, or answers that it cannot now: connect again after a while.

    Whether something sent just before was stored is unknown; the new connection finds out.
    """

    def __init__(self, server: Server, why: str) -> None:
        super().__init__(f"{server}: {why}")
        self.server: Server = server
        self.why = why


class StoresNothing(ServerUnavailable):
    """NATS answers what it is asked and stores nothing: its disk is full, or was, and it was not restarted since."""


def first_line(error: BaseException) -> str:
    """One line that names an error: its first line of text, or its type when it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
