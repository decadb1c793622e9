"""What the process that asks NVML prints. Apart from it, so that the agent never imports the bindings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node_agent.wire.fields import Exact
from node_agent.wire.topology import GAPS_MAX, GPUS_MAX, Gap, Gpu, Text


class NvmlReport(Exact):
    """What NVML says. `answered` is false if it could not be asked at all; `gaps` says why."""

    answered: bool
    driver: Text | None = None
    gpus: Annotated[list[Gpu], Field(max_length=GPUS_MAX)] = Field(default_factory=list)
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)
