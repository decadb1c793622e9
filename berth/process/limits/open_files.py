"""The bound of open files of a process: most are connections."""

from __future__ import annotations

import resource
from typing import Final

FILES_MAX: Final = 1_048_576
"""Asked for where the hard limit is no bound: Linux refuses more by default."""


def raise_open_files() -> int:
    """Raise this process's soft limit of open files to its hard limit, and return it. A limit that cannot be raised stays.

    Many systems start processes with a soft limit of 1,024, which one client's connections would exhaust.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return soft
        return most
    return most if soft == resource.RLIM_INFINITY else soft
