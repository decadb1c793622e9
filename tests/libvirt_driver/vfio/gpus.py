"""GPUs of a constructed host, for the tests of taking and giving them back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import UUID

from node_agent.drivers.libvirt.vfio.passing import PassedGpus
from node_agent.drivers.libvirt.vfio.taken import TakenDevices
from tests.libvirt_driver.vfio.kernel import GPUS

ALLOCATION = UUID("7c0e0000-0000-4000-8000-000000000001")
OTHER = UUID("7c0e0000-0000-4000-8000-000000000002")
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])}


def gpus_of(host: Path, directory: Path, **changes: Any) -> PassedGpus:
    """The GPUs of the host whose files are below `host`; what is taken is written to `directory`."""
    return PassedGpus(TakenDevices(directory), tuple(GPUS), root=host, environment=ENVIRONMENT, **changes)
