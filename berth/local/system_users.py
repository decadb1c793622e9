"""The system user that a server runs as."""

from __future__ import annotations

import fcntl
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict


class ChildUser(TypedDict, total=False):
    """Arguments of `subprocess.Popen` for the user of a child; empty: this process's user."""

    user: str
    group: int
    extra_groups: list[int]


def run_as(user: str | None) -> ChildUser:
    """Arguments that make a child run as a system user."""
    return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Alone on this machine: two processes that make a user at once write one file of users, and one user is lost."""
    users = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(users, fcntl.LOCK_EX)
        yield
    finally:
        os.close(users)
