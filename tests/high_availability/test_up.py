"""`berth up --ha` as a process: what a killed one leaves does not block the next, and no layout is taken for the other."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from berth.cli.known_stack import StackProblem, read_stack
from berth.local.high_availability.cluster import cluster_of
from berth.local.high_availability.layout import require_layout
from berth.local.high_availability.postmasters import last_primary, postmaster_of
from berth.local.nats_cluster import addresses_of, nats_servers_of
from berth.local.state import Ports, StateDirectory
from tests.berth.commands import UpProcess, assert_one_sentence, berth, still_run
from tests.support.failover.cluster import running_cluster


@pytest.fixture
def directory(server_directory: Path) -> Iterator[Path]:
    """A place for a state directory."""
    place = server_directory / f"ha-{uuid.uuid4().hex[:8]}"
    place.mkdir()
    yield place / "var"
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        ("postgres", ["--ha"], ("one PostgreSQL server", "without --ha")),
        ("postgres-ha", [], ("three PostgreSQL servers", "with --ha")),
    ],
)
def test_a_directory_of_the_other_layout_is_refused_and_stays_as_it_is(
    tmp_path: Path, made: str, options: list[str], words: tuple[str, ...]
) -> None:
    state = StateDirectory(tmp_path / "var")
    state.prepare()
    (state.path / made).mkdir()
    before = sorted(path.name for path in state.path.iterdir())
    done = berth("up", "--state-dir", str(state.path), "--agents", "0", *options)
    assert_one_sentence(done, 1, *words, "--state-dir")
    assert sorted(path.name for path in state.path.iterdir() if path.name != "stack.lock") == before


@pytest.mark.parametrize(("made", "ha"), [("postgres", True), ("postgres-ha", False)])
def test_a_layout_is_not_taken_for_the_other(tmp_path: Path, made: str, ha: bool) -> None:
    state = StateDirectory(tmp_path / "var")
    require_layout(state, ha=ha, outside=False)
    (state.path / made).mkdir(parents=True)
    require_layout(state, ha=not ha, outside=False)
    with pytest.raises(StackProblem, match="name another --state-dir"):
        require_layout(state, ha=ha, outside=False)


def test_an_outside_server_and_a_cluster_exclude_each_other(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "var")
    with pytest.raises(StackProblem, match="leave one of them out"):
        require_layout(state, ha=True, outside=True, fresh=True)
    require_layout(state, ha=False, outside=True)
    (state.path / "postgres").mkdir(parents=True)
    require_layout(state, ha=True, outside=False, fresh=True)


def test_files_and_rights_of_a_member(directory: Path) -> None:
    """Secrets are readable by their owner alone, and each member's file holds everything that its server needs."""
    state = StateDirectory(directory)
    state.prepare()
    cluster = cluster_of(state, Ports(state))
    cluster.prepare()
    for member in cluster.members:
        assert stat.S_IMODE(member.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(member.directory.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in state.secrets.iterdir())
    texts = [member.file.read_text() for member in cluster.members]
    assert all(
        setting in text
        for text in texts
        for setting in ("synchronous_mode: quorum", "synchronous_mode_strict: true", "use_pg_rewind: true", "ttl: 20")
    )
    passwords = {path.read_text().strip() for path in state.secrets.iterdir()}
    assert all(sum(password in text for password in passwords) == 5 for text in texts)
    assert cluster_of(state, Ports(state)).url() == cluster.url(), "ports and passwords are kept"


def test_a_cluster_has_three_nats_servers_and_keeps_their_places(directory: Path) -> None:
    state = StateDirectory(directory)
    state.prepare()
    servers = nats_servers_of(state, Ports(state), ha=True)
    assert [server.name for server in servers] == ["nats-1", "nats-2", "nats-3"]
    ports = [port for server in servers for port in (server.port, server.monitor_port)]
    assert len(set(ports)) == 6
    address = addresses_of(servers, "relay")
    assert [part.rpartition(":")[2] for part in address.split(",")] == [str(server.port) for server in servers]
    again = nats_servers_of(state, Ports(state), ha=True)
    assert addresses_of(again, "relay") == address
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in state.secrets.iterdir())
    (one,) = nats_servers_of(state, Ports(state), ha=False)
    assert one.name == "nats"


def test_the_last_primary_is_found_by_its_timeline(server_directory: Path) -> None:
    """Only one that ran as primary on the newest timeline is started as a primary again: a deposed one never is."""
    with running_cluster(server_directory / f"cluster-{uuid.uuid4().hex[:8]}") as cluster:
        cluster.a.wait_for_commits_of(cluster.b, cluster.c)
        directories = [member.directory for member in cluster.members]
        new = cluster.fail_over(cluster.a.kill)
        for member in cluster.members:
            member.kill()
        assert last_primary(directories) == new.directory
        assert last_primary([cluster.a.directory]) == cluster.a.directory, "before the promotion"
        others = [member.directory for member in cluster.members if member is not new]
        shutil.copy(next((new.directory / "pg_wal").glob("*.history")), others[1] / "pg_wal")
        assert last_primary(others) is None, "a standby has seen a newer timeline than the primary's"
        (new.directory / "standby.signal").touch()
        assert last_primary(directories) is None, "it was demoted"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_killed_stack_leaves_nothing_that_blocks_the_next(directory: Path) -> None:
    first = UpProcess(directory, "--ha")
    try:
        first.wait_up()
        found = leader_of(directory)
        servers = [process for name in "abc" if (process := postmaster_of(directory / "postgres-ha" / name / "data"))]
        left = [*first.families(), *servers]
        assert len(servers) == 3
        first.end(signal.SIGKILL)
        assert set(still_run(left)) == set(left), "PostgreSQL outlives everything"
    finally:
        first.process.kill()
    second = UpProcess(directory, "--ha")
    try:
        second.wait_up()
        assert still_run(left) == []
        assert leader_of(directory) == found, "the same timeline"
        shown = [json.loads(line) for line in second.said.splitlines() if '"postgres-' in line]
        assert {entry["name"] for entry in shown} == {"postgres-a", "postgres-b", "postgres-c"}
        doctor = json.loads(berth("doctor", "--state-dir", str(directory), "--output", "json").stdout)
        (standbys,) = [finding for finding in doctor["findings"] if finding["subject"] == "standbys"]
        assert standbys["verdict"] == "ok", standbys
        assert "2 confirm commits" in standbys["detail"]
        members = second.families()
        assert second.end(signal.SIGINT) == 0
        assert still_run(members) == []
        assert not [name for name in "abc" if postmaster_of(directory / "postgres-ha" / name / "data")]
    finally:
        second.process.kill()


def leader_of(directory: Path) -> str:
    """Which server accepts writes."""
    url = read_stack(directory).database_url
    assert url is not None
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select postgres_leader_id()").fetchone()
    assert row is not None
    return str(row[0])
