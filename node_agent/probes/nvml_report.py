"""What the process that asks NVML for the health of GPUs prints. Apart from it, so that the agent never imports the bindings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from node_agent.wire.fields import Exact
from node_agent.wire.health import GpuHealth
from node_agent.wire.topology import GAPS_MAX, GPUS_MAX, Gap, Text


class NvmlHealth(Exact):
    """What NVML says. Without an answer of it there are no GPUs, and `gaps` says why."""

    driver: Text | None = None
    gpus: Annotated[list[GpuHealth], Field(max_length=GPUS_MAX)] = Field(default_factory=list)
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)
