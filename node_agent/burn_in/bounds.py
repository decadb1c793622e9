"""How much a burn-in takes of a node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bounds:
    """The settings of an agent's burn-ins. `dcgm_level`: of `dcgmi diag`, 0 switches it off."""

    directory: Path
    memory_bytes_max: int = 8 * 2**30
    disk_bytes_max: int = 2**30
    cpu_seconds: float = 10.0
    dcgm_level: int = 2
    plugins: Path | None = None
    plugin_seconds: float = 600.0
