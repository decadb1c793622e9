"""Logs of consoles (docs/reference/http-api.md)."""

from __future__ import annotations

from uuid import UUID

from berth.client.calls.call import Call, read
from berth.client.consoles.models import ConsoleLog


def read_console_log(
    allocation_id: UUID, *, offset: int | None = None, bytes_max: int | None = None
) -> Call[ConsoleLog]:
    """A part of the log of an active allocation's serial console, by default its end; a negative offset counts from there.

    Raises `NotFound`, `InvalidState`, `ConsoleLogAbsent`, `ConsoleUnsupported`, `ConsoleUnavailable`, `TooManyConsoles`.
    """
    path = f"/api/v1/allocations/{allocation_id}/console"
    return read(path, ConsoleLog, offset=offset, bytes_max=bytes_max)
