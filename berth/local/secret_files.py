"""Secrets of a local stack: one file each, readable by their owner alone, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from berth.cli.known_stack import read_secret
from berth.local.high_availability.configuration import Passwords
from berth.local.nats_users import NATS_USERS, NatsUsers
from berth.local.servers import new_password
from berth.local.state import write_whole
from migrations.roles import BACKUP_ROLE, Role

POSTGRES_PASSWORD = "postgres-password"


def write_secret(path: Path, text: str) -> None:
    """Replace a secret file, 0600 from its first byte on."""
    write_whole(path, text, mode=0o600)


def secret_once(path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`, made and stored first if there is none."""
    found = read_secret(path)
    if found is None:
        found = make()
        write_secret(path, found + "\n")
    return found


def nats_users(secrets_directory: Path) -> NatsUsers:
    """The users of the local NATS."""
    return NatsUsers(
        {user: secret_once(secrets_directory / f"nats-{user}-password", new_password) for user in NATS_USERS}
    )


def nats_routes_password(secrets_directory: Path) -> str:
    """The password with which the servers of a local NATS cluster reach each other."""
    return secret_once(secrets_directory / "nats-routes-password", new_password)


def postgres_password(secrets_directory: Path) -> str:
    """The local PostgreSQL's superuser password."""
    return secret_once(secrets_directory / POSTGRES_PASSWORD, new_password)


def backup_password(secrets_directory: Path) -> str:
    """The password of the role of `berth backup` on the local PostgreSQL."""
    return secret_once(secrets_directory / f"postgres-{BACKUP_ROLE}-password", new_password)


def cluster_passwords(secrets_directory: Path) -> Passwords:
    """The passwords of a cluster of PostgreSQL: its superuser, replication, rewinding, Patroni's REST API and its Raft."""

    def of(use: str) -> str:
        return secret_once(secrets_directory / f"cluster-{use}-password", new_password)

    return Passwords(postgres_password(secrets_directory), of("replication"), of("rewind"), of("rest"), of("raft"))


def role_passwords(secrets_directory: Path) -> dict[Role, str]:
    """The passwords of the roles that own nothing on the local PostgreSQL."""
    return {role: secret_once(secrets_directory / f"postgres-{role}-password", new_password) for role in Role}
