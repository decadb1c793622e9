"""One thing of the local stack as it is shown to a person."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass
class Part:
    """A server or a process: its state, its address and its process id."""

    name: str
    state: Literal["starting", "ready", "outside", "restarting", "blocked", "stopped", "failed"]
    where: str = ""
    pid: int | None = None
    seconds: float = 0.0
    log: Path | None = None
    restarts: int = 0
    why: str = ""
    """What an operator must do while it is `blocked`."""
    started: float = field(default_factory=time.monotonic)
