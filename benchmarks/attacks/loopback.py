"""Loopback addresses of attackers and of the tenant beside them, and the bound of open files that many connections need."""

from __future__ import annotations

import resource
from typing import Final

HOSTILE_SOURCES: Final = [f"127.0.0.{number}" for number in range(2, 10)]
"""Where hostile clients come from."""
QUIET_SOURCE: Final = "127.0.0.10"
"""Where the tenant beside them comes from."""


def raise_files_max(files: int) -> None:
    """Let this process and its children open so many files, as far as its hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
