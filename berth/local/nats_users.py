"""The users of a local NATS and their passwords; what each may do is in `nats-roles.conf`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from berth.local.state import write_whole

NatsUser = Literal["relay", "worker", "reader", "operator", "audit", "auditor"]
NATS_USERS: Final[tuple[NatsUser, ...]] = ("relay", "worker", "reader", "operator", "audit", "auditor")
ROLES_FILE = Path(__file__).with_name("nats-roles.conf")
PASSWORDS_FILE = "nats-passwords.conf"
TENANTS_FILE = "nats-tenants.conf"
LOG_ACCOUNT = "LOG"
"""The account that holds the stream."""


class NatsUsers:
    """Passwords by user."""

    def __init__(self, passwords: Mapping[NatsUser, str]) -> None:
        self._passwords = passwords

    def credentials_of(self, user: NatsUser) -> str:
        """User and password, as an address holds them."""
        return f"{user}:{self._passwords[user]}"

    def write(self, directory: Path) -> str:
        """Write roles and passwords beside a configuration of the server; returns the line that includes them.

        A stream of an earlier version, whose users had no accounts, moves to the account of the log.
        """
        before, log = (directory / "jetstream" / account for account in ("$G", LOG_ACCOUNT))
        if before.exists() and not log.exists():
            before.rename(log)
        shutil.copyfile(ROLES_FILE, directory / ROLES_FILE.name)
        lines = "".join(f'{user.upper()}_PASSWORD: "{password}"\n' for user, password in self._passwords.items())
        write_whole(directory / PASSWORDS_FILE, lines, mode=0o600)
        (directory / TENANTS_FILE).touch(mode=0o600)
        return f'include "{ROLES_FILE.name}"\n'
