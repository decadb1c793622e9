"""Builds tests/discovery/fake_nvml.c and writes the answers that it gives."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.discovery.trees import GPU_ADDRESSES

COMPILER = shutil.which("cc") or shutil.which("gcc")
MEMORY_BYTES = 85_520_809_984
LINKS = 18


def build(directory: Path) -> Path:
    """Return the directory with `libnvidia-ml.so.1`."""
    source = Path(__file__).with_name("fake_nvml.c")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([COMPILER or "cc", *flags, "-o", directory / "libnvidia-ml.so.1", source], check=True)
    return directory


class FakeNvml:
    """The answers of one test. `environment` makes a process load the fake."""

    def __init__(self, library: Path, answers: Path) -> None:
        self._answers = answers
        self.environment = {
            "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(answers),
        }  # fmt: skip
        self.answer()

    def answer(self, **changes: str | int | None) -> None:
        """Eight GPUs, the last one in MIG mode with a gap in its instances; `changes` replace keys (`__` for a dot)."""
        keys: dict[str, str | int | None] = {"driver": "580.95.05", "count": len(GPU_ADDRESSES)}
        for index, address in enumerate(GPU_ADDRESSES):
            one: dict[str, str | int | None] = {
                "name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-00000000-0000-4000-8000-{index:012d}",
                "serial": f"165{index:010d}", "vbios": "96.00.89.00.01", "memory": MEMORY_BYTES, "mig": 0, "mig_max": 7,
                "links": LINKS, "pci": f"0000{address}".upper(), "ecc_corrected_volatile": 0, "ecc_uncorrected_volatile": 0,
                "ecc_uncorrected_lifetime": 0, "remapped": 0, "celsius": 38, "slowdown": 87, "throttle": 1,
            }  # fmt: skip
            keys |= {f"gpu{index}.{key}": value for key, value in one.items()}
        keys |= {"gpu7.mig": 1, "gpu7.instance0": "MIG-0", "gpu7.instance2": "MIG-2"}
        keys |= {key.replace("__", "."): value for key, value in changes.items()}
        self._answers.write_text("".join(f"{key}={value}\n" for key, value in keys.items() if value is not None))
