"""Users of guests in tests: the processes of a test run share one libvirtd, so each has a range of its own."""

from __future__ import annotations

import os

VARIABLE = "BERTH_GUEST_USER_ID_FIRST"


def name_own_users() -> None:
    """Give the agents that this process makes a range of users that no other process of the run has."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        os.environ.setdefault(VARIABLE, str(64_600 + 100 * int(worker.removeprefix("gw"))))


def first_user_id() -> int:
    """The user of the guest with the first slot."""
    return int(os.environ.get(VARIABLE, "64500"))
