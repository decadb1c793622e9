"""Checks the file system of the state directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from node_agent.checks.finding import Code, Finding


def check_direct_io(directory: Path, name: str = "state directory", setting: str = "BERTH_AGENT_STATE_DIR") -> Finding:
    """Check that files below `directory` open with O_DIRECT, so that no tenant data stay in the host's page cache."""
    remedy = f"put {setting} on a directory of ext4 or XFS that this user can write"
    probe = directory / f".check-{os.getpid()}"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.EINVAL:
            found = f"the file system of {directory} does not support O_DIRECT"
            return Finding(name, found, Code.DIRECT_IO_MISSING, remedy)
        return Finding(name, f"{directory}: {error.strerror}", Code.DIRECTORY_UNUSABLE, remedy)
    finally:
        # open(2) with O_CREAT may leave the file behind although O_DIRECT was refused.
        probe.unlink(missing_ok=True)
    os.close(descriptor)
    return Finding(name, f"{directory} supports O_DIRECT")
