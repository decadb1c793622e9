"""Stand-ins of LVM's programs, first on PATH: they answer with the rows of a file and write down how they were called."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.libvirt.disk_pool.contents import COLUMNS

GIB = 1 << 30
POOL = {
    "lv_name": "disks", "lv_uuid": "u0", "lv_size": str(100 * GIB), "lv_layout": "thin,pool", "zero": "zero",
    "data_percent": "12.50", "metadata_percent": "3.00", "lv_active": "active", "lv_device_open": "open",
    "lv_permissions": "writeable",
}  # fmt: skip


def row(**columns: str) -> dict[str, str]:
    """A row of `lvs` with all columns that are asked for."""
    return {**dict.fromkeys(COLUMNS, ""), **columns}


def report_of(*rows: Mapping[str, str]) -> str:
    """The JSON of `lvs`."""
    return json.dumps({"report": [{"lv": list(rows)}]})


class FakeLvm:
    """`says` is what `lvs` prints. Every other program succeeds unless `fails` names it."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        directory.mkdir()
        patch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        self.says(report_of(row(**POOL)))
        for name in ("lvs", "lvcreate", "lvchange", "lvremove", "dmsetup", "thin_check"):
            self.program(name, "cat $0.says 2>/dev/null || true")

    def program(self, name: str, script: str) -> None:
        """Replace a program."""
        path = self._directory / name
        path.write_text(f'#!/bin/sh\necho "${{0##*/}} $*" >>{self._directory}/calls\n{script}\n')
        path.chmod(0o755)

    def says(self, text: str) -> None:
        """What `lvs` prints from here on."""
        (self._directory / "lvs.says").write_text(text)

    def after(self, program: str, *volumes: Mapping[str, str]) -> None:
        """Once the program was called, `lvs` prints the pool with these volumes."""
        (self._directory / f"{program}.after").write_text(report_of(row(**POOL), *volumes))
        self.program(program, f"cp $0.after {self._directory}/lvs.says")

    def pool(self, *volumes: Mapping[str, str], **changes: Any) -> None:
        """The pool with some columns changed, and volumes in it."""
        self.says(report_of(row(**{**POOL, **changes}), *volumes))

    def calls(self, program: str = "") -> list[str]:
        """The calls so far, of one program or of all."""
        file = self._directory / "calls"
        return [line for line in (file.read_text().splitlines() if file.exists() else []) if line.startswith(program)]
