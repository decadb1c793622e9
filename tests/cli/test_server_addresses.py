"""An impossible server address is refused with one sentence that names the setting, before anything starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic_core import PydanticCustomError
from sqlalchemy import create_engine, make_url

from berth.process.server_addresses import (
    usable_database_url,
    usable_nats_url,
    usable_temporal_address,
    without_password,
)
from migrations.upgrading import sqlalchemy_url
from tests.berth.commands import assert_one_sentence, berth, environment

SECRET = "hunter2"
GOOD = {
    "BERTH_DATABASE_URL": "postgresql://x@127.0.0.1:1/x", "BERTH_NATS_URL": "nats://127.0.0.1:1",
    "BERTH_TEMPORAL_ADDRESS": "127.0.0.1:1", "BERTH_WEBHOOK_KEY_FILE": "/nowhere/webhook.keys",
}  # fmt: skip
OF_WORKER = {
    "BERTH_TASK_SIGNING_KEY_FILE": "/nowhere/key.pem", "BERTH_TEMPORAL_PAYLOAD_KEY_FILE": "/nowhere/payload.keys",
}  # fmt: skip
"""The others refuse to start with the key that signs tasks."""
WRONG = [
    ("BERTH_DATABASE_URL", f"postgresql://x:{SECRET}@127.0.0.1:notaport/x"),
    ("BERTH_DATABASE_URL", "foo"),
    ("BERTH_NATS_URL", "foo"),
    ("BERTH_TEMPORAL_ADDRESS", "foo"),
]
READ_BY = {
    "orchestrator": {"BERTH_DATABASE_URL"},
    "outbox_relay": {"BERTH_DATABASE_URL", "BERTH_NATS_URL"},
    "worker": {"BERTH_DATABASE_URL", "BERTH_NATS_URL", "BERTH_TEMPORAL_ADDRESS"},
}


@pytest.mark.parametrize(
    ("command", "name", "address"),
    [
        # Each command once and each address once: a command takes half a second to start.
        pytest.param(
            command, name, address, marks=() if command == "up" or (name, address) == WRONG[0] else pytest.mark.full
        )
        for command in ("up", "verify", "doctor", "migrate")
        for name, address in WRONG
    ],
)
def test_a_command_refuses_before_it_starts_anything(command: str, name: str, address: str, tmp_path: Path) -> None:
    done = berth(command, "--state-dir", str(tmp_path / "var"), **{**GOOD, name: address})
    assert_one_sentence(done, 2, name, "must")
    assert SECRET not in done.stdout + done.stderr
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize(
    ("process", "name", "address"),
    [
        # Each address once: a process takes a second to start, and what can be none is tried below.
        pytest.param(process, name, address, marks=pytest.mark.full if (name, address) == WRONG[1] else ())
        for process, names in READ_BY.items()
        for name, address in WRONG
        if name in names
    ],
)
def test_a_process_refuses_at_start(process: str, name: str, address: str) -> None:
    settings = {**GOOD, **(OF_WORKER if process == "worker" else {}), name: address}
    done = subprocess.run(
        [sys.executable, "-m", process], env=environment(**settings), capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert f"{name}: " in done.stderr
    assert "must" in done.stderr
    assert SECRET not in done.stdout + done.stderr


DATABASES = [usable_database_url]
NATS = [usable_nats_url]
TEMPORAL = [usable_temporal_address]


@pytest.mark.parametrize(
    ("checks", "address"),
    [
        (DATABASES, "postgresql://u:p@host:5432/db?sslmode=require"),
        (DATABASES, "postgres://u:p%40@[::1]:5432/db"),
        (DATABASES, "postgresql://u:p@/db?host=a,b&port=1,2&target_session_attrs=read-write"),
        (DATABASES, "postgresql:///db?host=a,::1&port=5432"),
        (DATABASES, "postgresql://host/db?target_session_attrs=primary"),
        (DATABASES, "postgresql:///db?host=/run/postgresql"),
        (DATABASES, "postgresql://nowhere"),
        (NATS, "nats://host"),
        (NATS, "tls://u:p@host:4222, nats://[::1]:4222"),
        (TEMPORAL, "host.example:7233"),
        (TEMPORAL, "[::1]:7233"),
    ],
)
def test_a_possible_address_is_accepted(checks: list[Callable[[str], str]], address: str) -> None:
    for check in checks:
        assert check(address) == address


@pytest.mark.parametrize(
    ("checks", "address"),
    [
        (DATABASES, ""),
        (DATABASES, "postgresql:host/db"),
        (DATABASES, "mysql://host/db"),
        (DATABASES, "postgresql://[::1/db"),
        (DATABASES, "postgresql://a:1,b:2/db"),
        (DATABASES, "postgresql:///db?host=a:1&host=b:2"),
        (DATABASES, "postgresql:///db?host=a&host=b"),
        (DATABASES, "postgresql:///db?host=a:1,b:2"),
        (DATABASES, "postgresql:///db?host=a,,b"),
        (DATABASES, "postgresql:///db?host=a,b&port=1,2,3"),
        (DATABASES, "postgresql:///db?host=a,b&port=1,x"),
        (DATABASES, "postgresql:///db?host=a,b&port=0"),
        (DATABASES, "postgresql://c/db?host=a,b"),
        (DATABASES, "postgresql://c/db?port=1"),
        (DATABASES, "postgresql:///db?host=a,b&target_session_attrs=writable"),
        (DATABASES, "postgresql://host:65536/db"),
        (DATABASES, "postgresql://host:²/db"),
        (DATABASES, "postgresql://host/d\nb"),
        (NATS, ""),
        (NATS, "nats://"),
        (NATS, "nats://:4222"),
        (NATS, "nats://host:x"),
        (NATS, "nats://host,foo"),
        (NATS, "http://host:4222"),
        (TEMPORAL, ""),
        (TEMPORAL, "host"),
        (TEMPORAL, ":7233"),
        (TEMPORAL, "host:"),
        (TEMPORAL, "host:0"),
        (TEMPORAL, "http://host:7233"),
    ],
)
def test_an_impossible_address_is_refused_without_repeating_it(
    checks: list[Callable[[str], str]], address: str
) -> None:
    for check in checks:
        with pytest.raises(PydanticCustomError, match="must"):
            check(address)


def test_every_library_takes_an_address_of_several_servers_to_mean_the_same() -> None:
    address = "postgresql://u:p@/db?host=a,b&port=1,2&target_session_attrs=read-write"
    assert usable_database_url(address) == address
    wanted = {
        "host": "a,b",
        "port": "1,2",
        "user": "u",
        "password": "p",
        "dbname": "db",
        "target_session_attrs": "read-write",
    }
    assert conninfo_to_dict(address) == wanted
    dialect = create_engine(sqlalchemy_url(address)).dialect
    _, arguments = dialect.create_connect_args(make_url(sqlalchemy_url(address)))
    assert {name: value for name, value in arguments.items() if name in wanted} == wanted


@pytest.mark.parametrize(
    ("addresses", "shown"),
    [
        ("nats://relay:s3cret@nats:4222", "nats://nats:4222"),
        ("tls://a:s3cret@one:1,tls://b:s3cret@two:2", "tls://one:1,tls://two:2"),
        ("postgresql://berth:s3cret@[::1]:5432/berth?sslmode=require", "postgresql://[::1]:5432/berth?sslmode=require"),
        ("nats://nats:4222", "nats://nats:4222"),
    ],
)
def test_an_address_is_shown_without_its_password(addresses: str, shown: str) -> None:
    assert without_password(addresses) == shown
