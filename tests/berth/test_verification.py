"""`berth verify` finds every violation it is there for, and none in a database that real commands kept busy."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from migrations.roles import Role
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context
from orchestrator.verification import CHECKS, Bounds, Verdict, run_checks
from orchestrator.verification.all_checks import Check
from orchestrator.verification.units import EQUATION
from orchestrator.verification.verdict import VIOLATIONS_SHOWN
from tests.allocations.driving import run_with
from tests.berth.busy import make_busy
from tests.berth.violations import VIOLATIONS_OF_ROWS, Violation, sql_of
from tests.berth.violations_of_billing import BILLED
from tests.berth.violations_of_facts import FACTS
from tests.berth.violations_of_reservations import RESERVED
from tests.berth.violations_of_stories import VIOLATIONS_OF_STORIES
from tests.berth.violations_of_tenants import LEFT_BEHIND
from tests.databases import as_role, copied_database
from tests.networks.violations import NETWORKS
from tests.wiping.violations import WIPES

PROMISES = {
    "P1", "P2", "P2 reservations", "P3", "P4", "P5", "P6", "login data", "claims", "wipe certificates", "networks", "maintenance",
    "P7", "P8", "P8 reservations", "P9", "P13", "units",
    "fit", "quota", "counts", "billing", "tenants", "archive", "audit",
}  # fmt: skip
VIOLATIONS = [*VIOLATIONS_OF_ROWS, *VIOLATIONS_OF_STORIES, *FACTS, *RESERVED, *WIPES, *NETWORKS, *BILLED, *LEFT_BEHIND]


@pytest.fixture(scope="module")
def busy_url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """One busy database for the module; tests change it in transactions that they take back."""
    with copied_database(postgres_server, migrated_template) as url:
        make_busy(url)
        with psycopg.connect(url) as connection:
            connection.execute("select audit_advance(100000)")
        yield url


@pytest.fixture(scope="module")
def session(busy_url: str) -> Iterator[psycopg.Connection]:
    """One session for the module, which reads the catalogue once."""
    with psycopg.connect(busy_url) as connection:
        yield connection


@pytest.fixture
def planting(session: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A transaction on the busy database that is taken back."""
    yield session
    session.rollback()


@pytest.fixture(scope="module")
def check_of(busy_url: str) -> Mapping[str, Check]:
    """The check of each promise."""
    with psycopg.connect(busy_url) as connection:
        return {check(connection, Bounds()).promise: check for check in CHECKS}


def judged(connection: psycopg.Connection) -> dict[str, Verdict]:
    """Every check's verdict on what this transaction sees."""
    return {verdict.promise: verdict for verdict in (check(connection, Bounds()) for check in CHECKS)}


def broken(verdicts: dict[str, Verdict]) -> dict[str, list[str]]:
    """The promises that are not kept, with what was found."""
    return {promise: verdict.violations for promise, verdict in verdicts.items() if not verdict.kept}


def test_a_busy_database_keeps_every_promise(busy_url: str) -> None:
    verdicts = {verdict.promise: verdict for verdict in run_checks(as_role(busy_url, Role.OPERATOR))}
    assert set(verdicts) == PROMISES
    assert broken(verdicts) == {}
    assert all(verdict.checked > 0 and verdict.seconds > 0 for verdict in verdicts.values()), verdicts
    with psycopg.connect(busy_url) as connection:
        states = connection.execute("select distinct state from allocations").fetchall()
        reused = connection.execute(
            "select count(*) from claims a join claims b on a.id < b.id and a.units && b.units"
        ).fetchone()
    # Otherwise the busy database would prove less than it says.
    assert {state for (state,) in states} == {
        "requested", "active", "releasing", "released", "release_failed", "failed",
    }  # fmt: skip
    assert reused
    assert reused[0] > 0


of_each_violation = pytest.mark.parametrize(
    "violation", VIOLATIONS, ids=lambda violation: violation.name.replace(" ", "_")
)


@of_each_violation
def test_a_planted_violation_is_found(
    planting: psycopg.Connection, check_of: Mapping[str, Check], violation: Violation
) -> None:
    planting.execute(sql_of(violation.plant))
    verdicts = [check_of[promise](planting, Bounds()) for promise in sorted(violation.broken)]
    assert not any(verdict.kept for verdict in verdicts)
    assert any(violation.words in sentence for verdict in verdicts for sentence in verdict.violations), verdicts


# Every check on every violation; the quicker test: test_a_planted_violation_is_found.
@pytest.mark.full
@of_each_violation
def test_a_planted_violation_breaks_these_promises_alone(planting: psycopg.Connection, violation: Violation) -> None:
    planting.execute(sql_of(violation.plant))
    found = broken(judged(planting))
    assert set(found) == violation.broken, found
    sentences = [sentence for sentences in found.values() for sentence in sentences]
    assert any(violation.words in sentence for sentence in sentences), sentences


def test_every_promise_has_a_planted_violation() -> None:
    assert set().union(*(violation.broken for violation in VIOLATIONS)) == PROMISES
    assert len({violation.name for violation in VIOLATIONS}) == len(VIOLATIONS)


def test_an_operation_record_may_be_gone_after_its_time(planting: psycopg.Connection) -> None:
    planting.execute(
        sql_of(
            "update allocations set requested_at = requested_at - interval '2 days' where name = 'early';"
            " update allocation_timeline set at = at - interval '2 days'"
            " where allocation_id = {early} and to_state = 'requested';"
            " update log set occurred_at = occurred_at - interval '2 days'"
            " where event_type = 'provisioning.requested' and subject = 'allocations/' || {early};"
            " delete from operations where subject_id = {early}"
        )
    )
    assert broken(judged(planting)) == {}


def test_a_truncated_log_violates_nothing(planting: psycopg.Connection) -> None:
    planting.execute("delete from log where version <= 3")
    planting.execute("update log_first set version = 4")
    planting.execute("update consumer_positions set version = 3")
    assert broken(judged(planting)) == {}


def test_an_operator_may_state_the_cleanup(planting: psycopg.Connection) -> None:
    """The one way round proof is on the record (DESIGN P6)."""
    planting.execute(
        sql_of(
            "update node_tasks set result = '{}' where allocation_id = {cleaned} and state = 'completed';"
            " insert into audit (principal_kind, principal_id, action, subject)"
            " values ('admin', 'operator-2', 'allocation.force_cleanup', 'allocations/' || {cleaned})"
        )
    )
    assert broken(judged(planting)) == {}


def test_an_allocation_that_never_reached_a_node_needs_no_proof(planting: psycopg.Connection) -> None:
    planting.execute(sql_of("delete from node_tasks where allocation_id = {unstarted}"))
    assert broken(judged(planting)) == {}


def test_the_units_are_counted_as_the_node_view_counts_them(busy_url: str) -> None:
    """Two statements written apart: operators and `berth verify` may not disagree about what blocks a slot."""
    with psycopg.connect(busy_url, autocommit=True) as connection:
        (stale,) = connection.execute("select name from nodes where shape = 'gpu_slice' limit 1").fetchone() or ("",)
        connection.execute("update nodes set online = false where name = %s", (stale,))
        try:
            (note,) = [verdict.note for verdict in run_checks(busy_url) if verdict.promise == "units"]
            shown = run_with(busy_url, _slots_by_state)
        finally:
            connection.execute("update nodes set online = true where name = %s", (stale,))
    states = ("free", "held", "allocated", "cleanup_blocked", "out_of_service")
    assert note == EQUATION.format(*(shown[state] for state in states), shown.total())
    assert min(shown["free"], shown["allocated"], shown["cleanup_blocked"], shown["out_of_service"]) > 0


async def _slots_by_state(context: Context) -> Counter[str]:
    async with context.database.reading() as reading:
        found = await nodes.list_nodes(reading, state=None, region=None, after=uuid.UUID(int=0), limit=100)
        return Counter([slot.state for node in found for slot in await nodes.read_slots(reading, node.id)])


def test_a_long_list_of_violations_is_cut_and_the_rest_counted(planting: psycopg.Connection) -> None:
    planting.execute("update log set prev_version = 7777777")
    verdict = judged(planting)["P3"]
    assert len(verdict.violations) == VIOLATIONS_SHOWN
    (events,) = planting.execute("select count(*) from log").fetchone() or (0,)
    assert verdict.more == events - VIOLATIONS_SHOWN


def test_checking_only_reads(busy_url: str) -> None:
    """The snapshot that is checked cannot be written to: a check that tried would raise."""
    with psycopg.connect(busy_url) as connection:
        before = connection.execute("select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_user_tables").fetchone()
        connection.rollback()
        run_checks(busy_url)
        after = connection.execute("select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_user_tables").fetchone()
    assert before == after
