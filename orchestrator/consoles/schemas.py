"""Consoles as the API accepts and returns them (docs/reference/fleet/console.md)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from node_agent.wire.console import LOG_BYTES_MAX
from node_agent.wire.fields import INTEGER_MAX
from orchestrator.http.types.numbers import BigCount

LOG_BYTES_DEFAULT = 64 * 1024


class ConsoleLogQuery(BaseModel):
    """Which part of the log: by default its end."""

    model_config = ConfigDict(extra="forbid")

    offset: int = Field(
        -LOG_BYTES_DEFAULT, ge=-INTEGER_MAX, le=INTEGER_MAX,
        description="where the part begins; a negative number counts from the log's end",
    )  # fmt: skip
    bytes_max: int = Field(LOG_BYTES_DEFAULT, ge=1, le=LOG_BYTES_MAX, description="the most bytes of the part")


class ConsoleLog(BaseModel):
    """A part of a console's log as its node has it now. The guest writes it and may write anything."""

    allocation_id: UUID
    offset: BigCount = Field(description="where the part begins")
    next_offset: BigCount = Field(description="where the next part begins")
    data: Annotated[str, Field(description="the bytes, in base64 (RFC 4648)")]
