"""What every host says of itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from node_agent.drivers.contract import Facts


def facts_of_host(driver: str, directory: Path) -> Facts:
    """The host's kernel, processors and memory, and the free disk of `directory`. Raises OSError."""
    return Facts(
        driver=driver,
        kernel=os.uname().release,
        processors=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        disk_free_bytes=shutil.disk_usage(directory).free,
    )
