"""The newest version of the log."""

from __future__ import annotations

from berth.client.calls.call import Call, read
from berth.client.models import Answer


class LogVersion(Answer):
    """The newest version, which includes every write acknowledged before the request, and the leader that writes the log."""

    version: int
    leader_id: str


def get_log_version() -> Call[LogVersion]:
    """The newest version; it sequences what is waiting."""
    return read("/v1/version", LogVersion)
