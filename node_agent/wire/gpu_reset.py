"""A reset of GPUs: what `diag.gpu_reset` is given and what it returns.

Every GPU of the order has one result. None is reset unless all of them can be: `gpu_reset_left_out` names those that were
not touched because of another one.
"""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from node_agent.wire.burn_in import SLOTS_MAX
from node_agent.wire.fields import Wire
from node_agent.wire.health import Evidence
from node_agent.wire.topology import GAPS_MAX, GPUS_MAX, Gap, Name, PciAddress, Text

GPU_RESET_FEATURE: Final = "gpu_reset"
"""What an agent that knows the task names in its heartbeats."""

ResetOutcome = Literal[
    "reset", "gpu_missing", "gpu_in_use", "gpu_reset_unsupported", "gpu_reset_left_out", "gpu_reset_failed",
    "gpu_reset_unverified",
]  # fmt: skip
UNTOUCHED: Final = frozenset({"gpu_missing", "gpu_in_use", "gpu_reset_unsupported", "gpu_reset_left_out"})
"""Outcomes of GPUs that the agent has not touched."""


class GpuResetParameters(Wire):
    """What `diag.gpu_reset` needs: the slots, all out of service, and the PCI addresses of their GPUs.

    `serials`: the serial number expected at an address, as far as it is known.
    """

    slots: Annotated[
        list[Annotated[int, Field(strict=True, ge=0, lt=SLOTS_MAX)]], Field(min_length=1, max_length=SLOTS_MAX)
    ]
    gpus: Annotated[list[PciAddress], Field(min_length=1, max_length=GPUS_MAX)]
    serials: Annotated[dict[PciAddress, Text], Field(max_length=GPUS_MAX)] = Field(default_factory=dict)


class GpuResetResult(Wire):
    """One GPU. `serial`: by NVML after the reset. `method`: as sysfs names it, or `nvidia-smi`."""

    address: PciAddress
    outcome: ResetOutcome
    method: Name | None = None
    serial: Text | None = None
    evidence: Evidence = ""


def _each_once(results: list[GpuResetResult]) -> list[GpuResetResult]:
    if len({one.address for one in results}) < len(results):
        raise ValueError("names one GPU twice")
    return results


class GpuResetReport(Wire):
    """The whole reset."""

    driver: Name
    gpus: Annotated[list[GpuResetResult], Field(max_length=GPUS_MAX), AfterValidator(_each_once)]
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        content = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
