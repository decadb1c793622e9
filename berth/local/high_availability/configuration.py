"""The configuration file of one member: Patroni in quorum mode, with its store inside the members (Raft).

Everything is in files: `pg_rewind` starts a server with its files alone. Patroni adds only settings that the file has as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from berth.process.json_objects import JsonObject
from migrations.roles import BACKUP_ROLE

SCOPE = "berth"
REPLICATION_USER, REWIND_USER = "berth_replication", "berth_rewind"
REST_USER = "berth"
TTL_SECONDS, LOOP_SECONDS, RETRY_SECONDS = 20, 2, 3
"""Patroni raises a ttl below 20 s to 20 s without a word."""
LAG_BYTES_MAX = 1 << 20
"""A standby that is further behind the last known position of the primary is not promoted."""
SETTINGS: Mapping[str, str | int] = {
    "max_connections": 200, "shared_buffers": "128MB", "max_wal_size": "4GB", "autovacuum_naptime": "5s",
    "log_min_messages": "warning", "transaction_timeout": 0, "wal_level": "replica", "hot_standby": "on",
    "wal_log_hints": "on", "max_wal_senders": 10, "max_replication_slots": 10, "wal_keep_size": "512MB",
    "max_slot_wal_keep_size": "4GB", "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "500ms",
    # Of a frozen peer: a standby then connects again instead of waiting a minute.
    "wal_sender_timeout": "10s", "wal_receiver_timeout": "10s",
}  # fmt: skip


@dataclass(frozen=True)
class MemberPorts:
    """Where a member listens on the loopback address: PostgreSQL, Patroni's REST API and its Raft."""

    postgres: int
    rest: int
    raft: int


@dataclass(frozen=True)
class Passwords:
    """Made once and stored by the caller; each has one use."""

    superuser: str = field(repr=False)
    replication: str = field(repr=False)
    rewind: str = field(repr=False)
    rest: str = field(repr=False)
    raft: str = field(repr=False)


def configuration(
    name: str,
    directory: Path,
    programs: Path,
    ports: Mapping[str, MemberPorts],
    passwords: Passwords,
    *,
    may_lead: bool,
) -> JsonObject:
    """The content of `patroni.yml` for a member with its files in `directory`.

    `may_lead`: False while another member is known to be the last primary and has not taken the lead again.
    """
    own = ports[name]
    return {
        "scope": SCOPE,
        "name": name,
        "restapi": {
            "listen": f"127.0.0.1:{own.rest}",
            "connect_address": f"127.0.0.1:{own.rest}",
            "authentication": {"username": REST_USER, "password": passwords.rest},
        },
        "raft": {
            "data_dir": str(directory / "raft"),
            "self_addr": f"127.0.0.1:{own.raft}",
            "partner_addrs": [f"127.0.0.1:{other.raft}" for other in ports.values() if other != own],
            "password": passwords.raft,
        },
        "bootstrap": {"dcs": _cluster_settings(), "initdb": _INITDB},
        "postgresql": {
            "listen": f"127.0.0.1:{own.postgres}",
            "connect_address": f"127.0.0.1:{own.postgres}",
            "data_dir": str(directory / "data"),
            "bin_dir": str(programs),
            "pgpass": str(directory / "pgpass"),
            "use_unix_socket": False,
            "pg_hba": [
                f"host replication {REPLICATION_USER} 127.0.0.1/32 scram-sha-256",
                f"host replication {BACKUP_ROLE} 127.0.0.1/32 scram-sha-256",
                "host all all 127.0.0.1/32 scram-sha-256",
            ],
            "authentication": {
                "superuser": {"username": "postgres", "password": passwords.superuser},
                "replication": {"username": REPLICATION_USER, "password": passwords.replication},
                "rewind": {"username": REWIND_USER, "password": passwords.rewind},
            },
            "parameters": {"unix_socket_directories": ""},
            "remove_data_directory_on_rewind_failure": True,
        },
        "watchdog": {"mode": "off"},
        "tags": {"nofailover": not may_lead},
    }


_INITDB = [{"encoding": "UTF8"}, {"locale": "C"}, {"auth-host": "scram-sha-256"}, {"auth-local": "scram-sha-256"}]


def _cluster_settings() -> JsonObject:
    return {
        "ttl": TTL_SECONDS,
        "loop_wait": LOOP_SECONDS,
        "retry_timeout": RETRY_SECONDS,
        "maximum_lag_on_failover": LAG_BYTES_MAX,
        # A primary whose PostgreSQL died is not restarted first: a standby has everything that was acknowledged.
        "primary_start_timeout": 0,
        "synchronous_mode": "quorum",
        # Without any standby commits wait, instead of being acknowledged by one server.
        "synchronous_mode_strict": True,
        "synchronous_node_count": 1,
        "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": dict(SETTINGS)},
    }
