"""The deploy medium of one boot, with the test's driver in place of the loop."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from berth.local.machines.media import with_overlay
from node_agent.media.medium import CommonMedium
from node_agent.wire.deploy_medium import DeployMedium

DRIVER = Path(__file__).with_name("guest_driver.py")


def with_driver(medium: Path, directory: Path) -> Path:
    """A copy of the medium whose initramfs has the driver as `node_agent/__main__.py`."""
    tree = directory / "overlay/opt/berth/node_agent"
    (tree / "__pycache__").mkdir(parents=True)
    shutil.copy(DRIVER, tree / "__main__.py")
    (tree / "__pycache__/__main__.cpython-311.pyc").touch()  # empty: the source is compiled
    return with_overlay(medium, directory)


def own_medium(common: Path, configuration: DeployMedium, out: Path) -> Path:
    """The bytes that the media server would send for this configuration."""
    with CommonMedium(common) as medium, out.open("wb") as file:
        for start in range(0, medium.size_bytes, 2**22):
            length = min(2**22, medium.size_bytes - start)
            file.write(medium.read(configuration.written(), start, length))
        os.fsync(file.fileno())
    return out
