"""A recorded machine whose GPUs are reset: by files of sysfs, and by a stand-in for nvidia-smi."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from node_agent.gpu_reset.gpu_reset import MARGIN_SECONDS, GpuReset
from node_agent.wire.gpu_reset import GpuResetParameters, GpuResetReport
from tests.discovery.fake_nvml import FakeNvml
from tests.discovery.probes.programs import write_program
from tests.discovery.trees import GPU_ADDRESSES, RecordedTree

CONFIG = b"\xde\x10\x30\x23" + bytes(60)
PYTHONPATH = str(Path(__file__).parents[3])


class Machine:
    """Eight GPUs; those given are passed through to guests (`vfio-pci`), the others are of the driver `nvidia`."""

    def __init__(self, root: Path, *passed_through: int) -> None:
        self.tree = RecordedTree(root)
        self.root = root
        for index, address in enumerate(GPU_ADDRESSES):
            self.file(index, "config", CONFIG)
            if index in passed_through:
                (root / self.directory(index) / "driver").unlink()
                self.tree.link(f"{self.directory(index)}/driver", "../../../../bus/pci/drivers/vfio-pci")
                self.file(index, "reset", b"")
                self.file(index, "reset_method", b"flr bus\n")
            assert (root / self.directory(index)).name == address
        self.environment = {"PATH": f"{root / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": PYTHONPATH}

    def directory(self, index: int) -> str:
        return f"sys/bus/pci/devices/{GPU_ADDRESSES[index]}"

    def file(self, index: int, name: str, content: bytes) -> None:
        self.tree.write(f"{self.directory(index)}/{name}", content)

    def was_reset(self, index: int) -> bool:
        return (self.root / self.directory(index) / "reset").read_bytes() == b"1"

    def open_by_process(self, target: str, process: int = 4711) -> None:
        """As if a process had this file open."""
        self.tree.link(f"proc/{process}/fd/3", target)

    def nvidia_smi(self, text: str) -> None:
        """A stand-in for nvidia-smi that writes its arguments and then runs this Python."""
        asked = self.root / "asked"
        text = f"import pathlib, sys\npathlib.Path({str(asked)!r}).write_text(' '.join(sys.argv[1:]))\n{text}"
        write_program(self.root / "bin/nvidia-smi", text)

    @property
    def asked(self) -> str | None:
        file = self.root / "asked"
        return file.read_text() if file.exists() else None

    def with_nvml(self, nvml: FakeNvml) -> None:
        """Let this library answer for the GPUs of the driver `nvidia`."""
        self.environment = {**nvml.environment, **self.environment}

    def resetter(self, driver: str = "libvirt") -> GpuReset:
        return GpuReset(driver, self.root, self.environment)

    def reset(
        self, *indexes: int, held: frozenset[int] | None = frozenset(), seconds: float = 60.0, driver: str = "libvirt",
        serials: dict[str, str] | None = None,
    ) -> GpuResetReport:  # fmt: skip
        """Reset these GPUs, slot i is GPU i."""
        gpus = [GPU_ADDRESSES[index] for index in indexes]
        order = GpuResetParameters(slots=list(indexes), gpus=gpus, serials=serials or {})

        async def read_held() -> frozenset[int] | None:
            return held

        return asyncio.run(self.resetter(driver).run(order, seconds + MARGIN_SECONDS, read_held))


def outcomes(report: GpuResetReport) -> list[str]:
    """The outcome of each GPU, in the order asked."""
    return [one.outcome for one in report.gpus]
