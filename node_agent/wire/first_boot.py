"""What a node reports of a guest's first boot: whether cloud-init, and with it the tenant's user data, has ended.

`HeldAllocation.first_boot` is a `FirstBoot`. Agents of the version before send none. The guest's own word: it proves nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from node_agent.wire.fields import Wire

DETAIL_MAX: Final = 500


class FirstBootStatus(StrEnum):
    """How the first boot of a guest's disk ended, or that it has not."""

    PENDING = "pending"
    DONE = "done"
    DEGRADED = "degraded"
    """It ended with errors that cloud-init recovered from."""
    ERROR = "error"
    UNKNOWN = "unknown"
    """The guest's message cannot be read, or the agent does not report any."""
    NOT_APPLICABLE = "not_applicable"
    """The image has no cloud-init."""


ENDED: Final = frozenset({FirstBootStatus.DONE, FirstBootStatus.DEGRADED, FirstBootStatus.ERROR})


class FirstBoot(Wire):
    """The status, and what the guest said of it."""

    status: FirstBootStatus
    detail: Annotated[str, Field(min_length=1, max_length=DETAIL_MAX, pattern=r"^[\x20-\x7e]*$")] | None = None


def printable(text: str) -> str | None:
    """`text` as a detail: printable ASCII, bounded; None if nothing is left."""
    words = "".join(character if " " <= character <= "~" else " " for character in text).split()
    return " ".join(words)[:DETAIL_MAX].strip() or None
