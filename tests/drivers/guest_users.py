"""Users of guests in tests. The processes of a test run use one libvirtd, so their ranges differ."""

from __future__ import annotations

import os

VARIABLE = "BERTH_GUEST_USER_ID_FIRST"


def name_own_users() -> None:
    """Set the range of this process for the agents that it makes; without other processes it stays the usual one."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        os.environ.setdefault(VARIABLE, str(64_600 + 100 * int(worker.removeprefix("gw"))))


def first_user_id() -> int:
    """The user of the guest with the first slot."""
    return int(os.environ.get(VARIABLE, "64500"))
