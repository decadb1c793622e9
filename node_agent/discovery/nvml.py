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
    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        gaps.add("nvml", str(error))
        return NvmlReport(answered=False, gaps=gaps.all())
    if count > GPUS_MAX:
        gaps.add("nvml", f"{count} GPUs were found, the first {GPUS_MAX} are listed")
    found = [gpu for index in range(min(count, GPUS_MAX)) if (gpu := _gpu(index, gaps)) is not None]
    return NvmlReport(
        answered=True, driver=_text(pynvml.nvmlSystemGetDriverVersion, gaps, "nvml driver"), gpus=found, gaps=gaps.all()
    )


def _gpu(index: int, gaps: Gaps) -> Gpu | None:
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
    memory = _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total, gaps, subject)
    mig = _asked(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], gaps, subject)
    links = _links(handle, gaps, subject)
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


def _links(handle: Any, gaps: Gaps, subject: str) -> list[bool]:
    links: list[bool] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = _asked(lambda link=link: pynvml.nvmlDeviceGetNvLinkState(handle, link), gaps, subject)  # type: ignore[misc]
        if state is None:
            break
        links.append(bool(state))
    return links


def _mig_instances(handle: Any, gaps: Gaps, subject: str) -> int | None:
    most = _asked(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle), gaps, subject)
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
    answer = _asked(question, gaps, subject)
    if answer is None:
        return None
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    return printable(text)[:TEXT_MAX].strip() or None


def _asked(question: Callable[[], Value], gaps: Gaps, subject: str) -> Value | None:
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
