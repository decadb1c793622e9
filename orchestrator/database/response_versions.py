"""The log version that a response certainly includes (`Berth-Version`, docs/reference/http-api.md).

An event is given its version after the transaction that left it has committed. So content that is read after the head
was read includes the effects of every event up to that head.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = "select version from log_head"


@dataclass(slots=True)
class ResponseVersion:
    """The version of one response: the lowest head that was read before its parts, None before the first.

    `at_least`: the version that the client asked for. `is_stated`: it stated one, so a standby that has it may serve.
    """

    at_least: int = 0
    version: int | None = None
    is_stated: bool = False

    def note(self, version: int) -> None:
        """Record that a part of the response was read when the head was at `version`."""
        self.version = version if self.version is None else min(self.version, version)
