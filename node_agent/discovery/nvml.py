"""Asks NVML for its GPUs and prints a report: `python -m node_agent.discovery.nvml`.

A separate process: a call into the library may hang for ever or end its process, and neither may reach the agent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from node_agent.discovery.nvml_report import NvmlReport
from node_agent.discovery.reading import Gaps, pci_address, printable
from node_agent.wire.topology import GPUS_MAX, TEXT_MAX, Gpu

Value = TypeVar("Value")
MIG_INSTANCES_MAX = 16


def read_nvml() -> NvmlReport:
    """Ask for every GPU. A GPU that NVML has lost has no address and is a gap; an unsupported field is absent."""
    gaps = Gaps()
    count = count_gpus(gaps)
    if count is None:
        return NvmlReport(answered=False, gaps=gaps.all())
    found = [_gpu(index, *gpu, gaps) for index in range(count) if (gpu := gpu_at(index, gaps)) is not None]
    return NvmlReport(answered=True, driver=driver_version(gaps), gpus=found, gaps=gaps.all())


def count_gpus(gaps: Gaps) -> int | None:
    """How many GPUs to ask for; None if NVML does not answer."""
    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        gaps.add("nvml", str(error))
        return None
    if count > GPUS_MAX:
        gaps.add("nvml", f"{count} GPUs were found, the first {GPUS_MAX} are listed")
    return min(count, GPUS_MAX)


def driver_version(gaps: Gaps) -> str | None:
    """The version of NVIDIA's driver."""
    return _text(pynvml.nvmlSystemGetDriverVersion, gaps, "nvml driver")


def gpu_at(index: int, gaps: Gaps) -> tuple[Any, str] | None:
    """Handle and PCI address of a GPU; None if NVML does not answer for it."""
    subject = f"nvml gpu {index}"
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
    except pynvml.NVMLError as error:
        gaps.add(subject, str(error))
        return None
    address = pci_address(bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else str(bus_id))
    if address is None:
        gaps.add(subject, f"has no PCI address: {bus_id!r}")
        return None
    return handle, address


def _gpu(index: int, handle: Any, address: str, gaps: Gaps) -> Gpu:
    subject = f"nvml gpu {index}"
    memory = asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total, gaps, subject)
    mig = asked(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], gaps, subject)
    links = link_states(handle, gaps, subject)
    return Gpu(
        address=address,
        model=_text(lambda: pynvml.nvmlDeviceGetName(handle), gaps, subject),
        uuid=_text(lambda: pynvml.nvmlDeviceGetUUID(handle), gaps, subject),
        serial=_text(lambda: pynvml.nvmlDeviceGetSerial(handle), gaps, subject),
        firmware=_text(lambda: pynvml.nvmlDeviceGetVbiosVersion(handle), gaps, subject),
        memory_bytes=memory,
        mig_enabled=bool(mig) if mig is not None else None,
        mig_instances=_mig_instances(handle, gaps, subject) if mig else None,
        nvlinks=len(links) or None,
        nvlinks_up=sum(links) if links else None,
    )


def link_states(handle: Any, gaps: Gaps, subject: str) -> list[bool]:
    """Of each NVLink in order whether it is up."""
    links: list[bool] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            links.append(bool(pynvml.nvmlDeviceGetNvLinkState(handle, link)))
        except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            break  # behind the last one
        except pynvml.NVMLError as error:
            gaps.add(subject, str(error))
            break
    return links


def _mig_instances(handle: Any, gaps: Gaps, subject: str) -> int | None:
    most = asked(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle), gaps, subject)
    if most is None:
        return None
    found = 0
    for index in range(min(most, MIG_INSTANCES_MAX)):
        try:
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            continue  # indices have gaps
        except pynvml.NVMLError as error:
            gaps.add(subject, str(error))
            return None
        found += 1
    return found


def _text(question: Callable[[], Any], gaps: Gaps, subject: str) -> str | None:
    answer = asked(question, gaps, subject)
    if answer is None:
        return None
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    return printable(text)[:TEXT_MAX].strip() or None


def asked(question: Callable[[], Value], gaps: Gaps, subject: str) -> Value | None:
    """The answer; None if the GPU or the library does not support the question, or fails, which is a gap."""
    try:
        return question()
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None
    except (pynvml.NVMLError, ValueError) as error:
        gaps.add(subject, str(error))
        return None


if __name__ == "__main__":
    sys.stdout.buffer.write(read_nvml().model_dump_json().encode())
