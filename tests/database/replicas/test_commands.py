"""`berth verify --on-standby` and the finding of `berth doctor`, on a real standby."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow
from typer.testing import CliRunner

from berth.cli.deployment.standby import reading
from berth.cli.deployment.standby.reading import read_standby_finding
from berth.cli.deployment.verify import collect
from berth.cli.endings import Refused
from berth.cli.main import app
from berth.cli.settings import Settings
from migrations.roles import Role
from orchestrator.database.replicas import rules
from orchestrator.database.replicas.rules import Fit, PrimaryFacts, StandbyFacts, Unfit
from orchestrator.verification import all_checks
from orchestrator.verification.all_checks import CHECKS, run_checks
from orchestrator.verification.verdict import Bounds, Verdict
from tests.database.replicas.pairs import Pair, address_of, impatient, run, running_pair


@pytest.fixture(scope="module")
def pair(server_directory: Path) -> Iterator[Pair]:
    """Servers for the module; its last test ends the standby."""
    with running_pair(server_directory) as running:
        for _ in range(3):
            running.add_event()
        yield running


def verify(pair: Pair, standby: str | None, state: Path) -> tuple[int, str]:
    """Exit code and output of `berth verify --on-standby`, as the operators' role."""
    variables = {"BERTH_DATABASE_URL": address_of(pair.a, role=Role.OPERATOR), "COLUMNS": "400"}
    if standby is not None:
        variables["BERTH_READ_DATABASE_URL"] = standby
    done = CliRunner().invoke(app, ["verify", "--on-standby", "--state-dir", str(state)], env=variables)
    return done.exit_code, done.output


def standby_of(pair: Pair) -> str:
    """The address of the standby, as the operators' role."""
    return address_of(pair.b, role=Role.OPERATOR, standby=True)


def test_every_check_runs_on_the_standby(pair: Pair, tmp_path: Path) -> None:
    pair.catch_up()
    code, output = verify(pair, standby_of(pair), tmp_path)
    assert code == 0, output
    assert output.count("kept    ") == len(CHECKS)


def test_the_standby_is_read_and_not_the_primary(pair: Pair, tmp_path: Path) -> None:
    """The role that may not read everything runs no check: it is asked where the log is, and nothing else."""
    pair.catch_up()
    limited = address_of(pair.a, role=Role.READ_ONLY)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run_checks(limited)
    variables = {"BERTH_DATABASE_URL": limited, "BERTH_READ_DATABASE_URL": standby_of(pair)}
    done = CliRunner().invoke(app, ["verify", "--on-standby", "--state-dir", str(tmp_path)], env=variables)
    assert done.exit_code == 0, done.output


def test_the_checks_run_on_the_server_that_was_compared(pair: Pair, tmp_path: Path) -> None:
    """Of several servers: each connection would choose one of them anew."""
    pair.catch_up()
    checked: list[str] = []

    def collected(database_url: str, nats_url: str | None, settings: Settings, standby_url: str) -> list[Verdict]:
        del database_url, nats_url, settings
        checked.append(standby_url)
        return []

    several = f"{address_of(pair.a, pair.b, role=Role.OPERATOR, standby=True)}&load_balance_hosts=random"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("berth.cli.deployment.verify.collect", collected)
        code, output = verify(pair, several, tmp_path)
    assert code == 0, output
    (address,) = map(conninfo_to_dict, checked)
    assert (address["host"], address["hostaddr"], address["port"]) == ("127.0.0.1", "127.0.0.1", str(pair.b.port))
    with psycopg.connect(checked[0]) as connection:
        assert connection.execute("select pg_is_in_recovery()").fetchone() == (True,)


def test_a_check_that_the_replay_cancels_says_nothing(pair: Pair) -> None:
    """The primary drops what a check is going to read: the standby ends the check to replay that."""
    run(pair.a, "create table doomed (n integer)")
    pair.catch_up()

    def check(connection: psycopg.Connection, _: Bounds) -> Verdict:
        connection.execute("select count(*) from doomed")
        run(pair.a, "drop table doomed")
        pair.catch_up()
        connection.execute("select 1")
        return Verdict("none", "it is not cancelled")

    with pytest.MonkeyPatch.context() as patch, impatient(pair.b):
        patch.setattr(all_checks, "CHECKS", (check,))
        with pytest.raises(Refused) as refused:
            collect(pair.a.url(), None, Settings(), pair.b.url())
    assert (refused.value.code, refused.value.exit_code) == ("replay_conflict", 2)


def test_a_standby_that_does_not_catch_up_is_not_verified(pair: Pair, tmp_path: Path) -> None:
    pair.pause()
    try:
        pair.add_event()
        code, output = verify(pair, standby_of(pair), tmp_path)
        assert code == 2
        assert "more than 5 s behind" in output
        found = read_standby_finding(address_of(pair.a, role=Role.OPERATOR), standby_of(pair))
        assert (found.verdict, found.detail) == (
            "warning",
            f"127.0.0.1:{pair.b.port} serves no reads: it is more than 5 s behind",
        )
    finally:
        pair.resume()


def test_without_a_standby_nothing_is_verified(pair: Pair, tmp_path: Path) -> None:
    code, output = verify(pair, None, tmp_path)
    assert code == 2
    assert "set BERTH_READ_DATABASE_URL" in output


def test_the_primarys_own_address_is_no_standby(pair: Pair, tmp_path: Path) -> None:
    own = address_of(pair.a, role=Role.OPERATOR).partition("&target")[0]
    for address, why in (
        (own, "target_session_attrs=standby"),
        (address_of(pair.a, role=Role.OPERATOR, standby=True), "not in hot standby mode"),
    ):
        code, output = verify(pair, address, tmp_path)
        assert code == 2
        assert why in output


def test_another_database_of_the_standby_is_of_another_schema(pair: Pair) -> None:
    other = standby_of(pair).replace("/berth?", "/postgres?")
    found = read_standby_finding(address_of(pair.a, role=Role.OPERATOR), other)
    assert found.verdict == "warning"
    assert "schema is not one" in found.detail


def test_a_server_has_answered_when_its_facts_are_there(pair: Pair) -> None:
    """Else its clock would seem ahead by the time that the query takes."""
    pair.catch_up()
    rows: list[tuple[float, float]] = []
    judged: list[PrimaryFacts | StandbyFacts] = []

    def row(connection: psycopg.Connection[DictRow], statement: str) -> DictRow:
        began = time.monotonic()
        found = taken(connection, statement)
        rows.append((began, time.monotonic()))
        return found

    def judge(history: list[PrimaryFacts], facts: StandbyFacts, event_id: UUID | None, lag: float) -> Fit | Unfit:
        judged.extend([history[0], facts])
        return judged_by_rules(history, facts, event_id, lag)

    taken, judged_by_rules = reading._row, rules.judge_standby
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_row", row)
        patch.setattr(rules, "judge_standby", judge)
        found = reading.compare_standby(address_of(pair.a, role=Role.OPERATOR), standby_of(pair))
    assert found.unfit is None
    for facts, (began, ended) in zip(judged[:2], rows, strict=False):
        assert facts.asked <= began
        assert facts.answered >= ended


def test_a_role_without_privileges_is_not_of_another_schema(pair: Pair) -> None:
    run(pair.a, f"create role blind login password '{pair.a.password}'")
    pair.catch_up()
    blind = standby_of(pair).replace(f"//{Role.OPERATOR}:", "//blind:")
    found = read_standby_finding(address_of(pair.a, role=Role.OPERATOR), blind)
    assert found.verdict == "warning"
    assert "may not read what it is compared by" in found.detail


def test_the_finding_of_a_standby_that_may_serve_and_of_one_that_is_gone(pair: Pair) -> None:
    pair.catch_up()
    primary = address_of(pair.a, role=Role.OPERATOR)
    found = read_standby_finding(primary, standby_of(pair))
    assert (found.subject, found.verdict) == ("read standbys", "ok"), found
    assert f"127.0.0.1:{pair.b.port} may serve" in found.detail
    pair.b.kill()
    gone = read_standby_finding(primary, standby_of(pair))
    assert gone.verdict == "warning"
    assert "no standby can be asked, so the primary serves all reads" in gone.detail
