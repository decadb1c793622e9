"""Asks NVML for the health of its GPUs and prints a report: `python -m node_agent.probes.nvml`.

A separate process: a call into the library may hang for ever or end its process, and neither may reach the agent.
"""

from __future__ import annotations

import sys
from typing import Any

import pynvml

from node_agent.discovery.nvml import asked, count_gpus, driver_version, gpu_at, link_states
from node_agent.discovery.reading import Gaps
from node_agent.probes.nvml_report import NvmlHealth
from node_agent.wire.fields import INTEGER_MAX
from node_agent.wire.health import GpuHealth, ThrottleReason

_REASONS: tuple[tuple[int, ThrottleReason], ...] = (
    (pynvml.nvmlClocksThrottleReasonGpuIdle, "idle"),
    (pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting, "application_clocks"),
    (pynvml.nvmlClocksThrottleReasonSwPowerCap, "software_power_cap"),
    (pynvml.nvmlClocksThrottleReasonHwSlowdown, "hardware_slowdown"),
    (pynvml.nvmlClocksThrottleReasonSyncBoost, "sync_boost"),
    (pynvml.nvmlClocksThrottleReasonSwThermalSlowdown, "software_thermal"),
    (pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, "hardware_thermal"),
    (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power_brake"),
    (pynvml.nvmlClocksThrottleReasonDisplayClockSetting, "display_clocks"),
)
_LINK_ERRORS = (
    pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
    pynvml.NVML_NVLINK_ERROR_DL_ECC_DATA,
)


def read_nvml() -> NvmlHealth:
    """Ask for every GPU. A GPU that NVML has lost is a gap; a field that the GPU does not support is absent."""
    gaps = Gaps()
    count = count_gpus(gaps)
    if count is None:
        return NvmlHealth(gaps=gaps.all())
    found: dict[str, GpuHealth] = {}
    for index in range(count):
        if (gpu := gpu_at(index, gaps)) is not None:
            found[gpu[1]] = _gpu(index, *gpu, gaps)
    return NvmlHealth(driver=driver_version(gaps), gpus=list(found.values()), gaps=gaps.all())


def _gpu(index: int, handle: Any, address: str, gaps: Gaps) -> GpuHealth:
    subject = f"nvml gpu {index}"
    remapped = asked(lambda: pynvml.nvmlDeviceGetRemappedRows(handle), gaps, subject) or (None,) * 4
    links = link_states(handle, gaps, subject)
    return GpuHealth(
        address=address,
        ecc_corrected=_errors(handle, gaps, subject, uncorrected=False, lifetime=False),
        ecc_uncorrected=_errors(handle, gaps, subject, uncorrected=True, lifetime=False),
        ecc_uncorrected_lifetime=_errors(handle, gaps, subject, uncorrected=True, lifetime=True),
        remapped_corrected=remapped[0],
        remapped_uncorrected=remapped[1],
        remap_pending=None if remapped[2] is None else bool(remapped[2]),
        remap_failed=None if remapped[3] is None else bool(remapped[3]),
        temperature_celsius=asked(
            lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU), gaps, subject
        ),
        slowdown_celsius=asked(
            lambda: pynvml.nvmlDeviceGetTemperatureThreshold(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            gaps, subject,
        ),
        throttle_reasons=_throttle_reasons(handle, gaps, subject),
        nvlinks=len(links) or None,
        nvlinks_up=sum(links) if links else None,
        nvlink_errors=_link_errors(handle, len(links), gaps, subject),
    )  # fmt: skip


def _errors(handle: Any, gaps: Gaps, subject: str, *, uncorrected: bool, lifetime: bool) -> int | None:
    kind = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED if uncorrected else pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    counter = pynvml.NVML_AGGREGATE_ECC if lifetime else pynvml.NVML_VOLATILE_ECC
    return _bounded(asked(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter), gaps, subject))


def _throttle_reasons(handle: Any, gaps: Gaps, subject: str) -> list[ThrottleReason] | None:
    mask = asked(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle), gaps, subject)
    return None if mask is None else [name for bit, name in _REASONS if mask & bit]


def _link_errors(handle: Any, links: int, gaps: Gaps, subject: str) -> int | None:
    counts = [
        asked(lambda link=link, kind=kind: pynvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, kind), gaps, subject)  # type: ignore[misc]
        for link in range(links)
        for kind in _LINK_ERRORS
    ]
    known = [count for count in counts if count is not None]
    return _bounded(sum(known)) if known else None


def _bounded(count: int | None) -> int | None:
    return None if count is None else min(count, INTEGER_MAX)


if __name__ == "__main__":
    sys.stdout.buffer.write(read_nvml().model_dump_json(exclude_none=True).encode())
