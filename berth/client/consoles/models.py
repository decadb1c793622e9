"""A part of a console's log, and the refusals of consoles."""

from __future__ import annotations

import base64
from uuid import UUID

from berth.client.errors import BerthError, Overloaded
from berth.client.models import Answer


class ConsoleLog(Answer):
    """A part of a console's log as its node has it. The guest writes it and may write anything, control characters too."""

    allocation_id: UUID
    offset: int
    next_offset: int
    data: str

    @property
    def content(self) -> bytes:
        """The bytes."""
        return base64.b64decode(self.data)


class ConsoleBusy(BerthError):
    """Another session is attached to the console."""

    codes = ("console_busy",)


class ConsoleUnsupported(BerthError):
    """The node's agent is of a version that serves no consoles."""

    codes = ("console_unsupported",)


class ConsoleNotSetUp(BerthError):
    """The operator has not set up the serial console of the machine."""

    codes = ("console_not_set_up",)


class ConsoleLogAbsent(BerthError):
    """Nothing records the serial console of a bare-metal machine; attach to it."""

    codes = ("console_log_absent",)


class ConsoleUnavailable(Overloaded):
    """The API process serves no consoles, or the node's agent did not connect to it in time."""

    codes = ("console_unavailable",)


class TooManyConsoles(Overloaded):
    """The tenant, or the process, has as many sessions as it may."""

    codes = ("too_many_consoles",)
