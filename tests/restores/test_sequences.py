"""No number that the lost interval may have given to something is given again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from berth.cli.deployment.restore import gate
from berth.cli.deployment.restore.running import run_restore
from berth.local.servers import LocalPostgres
from tests.allocations.driving import claim_of, provision, rows_of, run_with
from tests.allocations.reconciling import kept
from tests.allocations.seeding import connect, create_allocation, seed
from tests.api.calling import Caller, enrol, insert_admin_key, new_node, new_region
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.verifying import broken_promises

_DRAWN = """
select sequencename, coalesce(last_value, start_value), max_value from pg_sequences where schemaname = 'public' order by 1
"""
FENCES, OTHERS, SMALL = 2**40, 2**32, 2**16
RATE = 131_072
"""Versions that are skipped for each second of the lost interval."""
SKIPPED = "select version, prev_version, payload from log where event_type ~ '^log' order by 1"


def drawn(url: str) -> dict[str, tuple[int, int]]:
    """What each sequence has drawn last, and its maximum."""
    return {name: (last, most) for name, last, most in rows_of(url, _DRAWN)}


@pytest.fixture
def restored_url(postgres_server: LocalPostgres, database_url: str) -> Iterator[str]:
    """A copy of the database from before more was drawn in it."""
    seeded = seed(database_url)
    known = create_allocation(database_url, seeded, gpus=2)
    run_with(database_url, lambda context: provision(context, database_url, known))
    with copied_database(postgres_server, database_url.rpartition("/")[2]) as url:
        create_allocation(database_url, seeded, gpus=2)
        yield url


def test_every_sequence_is_raised_once_above_what_was_drawn_since(restored_url: str, database_url: str) -> None:
    before = drawn(restored_url)
    steps: list[str] = []
    run_restore(restored_url, lambda step, said: steps.append(f"{step}: {said}"), NO_NATS)
    assert "raise: fences and every other sequence are above" in " ".join(steps)
    after, lost = drawn(restored_url), drawn(database_url)
    assert {"fences", "unit_numbers", "reservation_positions", "claims_id_seq", "outbox_id_seq"} <= after.keys()
    for name, (last, most) in after.items():
        raised = FENCES if name == "fences" else OTHERS if most == 2**63 - 1 else SMALL
        assert last - before[name][0] >= min(raised, most - before[name][0]), name
        assert last > lost[name][0], name
        assert last < most, name
    assert kept(restored_url) == []
    with connect(restored_url) as connection:
        (claim,) = connection.execute("insert into outbox (event_type, correlation_id, subject, payload) values "
                                      "('test.restored', uuidv7(), 's', '{}') returning id").fetchone() or (0,)  # fmt: skip
    assert claim > lost["outbox_id_seq"][0]


def test_versions_are_skipped_once_above_what_was_drawn_since(restored_url: str, database_url: str) -> None:
    """Also where no stream is rebuilt: a feed may have delivered versions of the lost interval."""
    for url, rounds in ((restored_url, 1), (database_url, 2)):
        with connect(url) as connection:
            for _ in range(rounds):
                connection.execute("select log_advance(1)")
    head = 1
    for number in (1, 2):  # a restore of the restored one too
        run_restore(restored_url, lambda *_: None, NO_NATS)
        skipped = rows_of(restored_url, SKIPPED)
        last = skipped[-1][0]
        assert last >= head + 2**20
        assert skipped[-1] == (last, head, {"first": head + 1, "last": last})
        assert len(skipped) == number
        head = last
    assert rows_of(restored_url, "select version from log_head") == [(last,)]
    with connect(restored_url) as connection:
        while connection.execute("select log_advance(1000)").fetchone() != (0,):
            continue
    assert kept(restored_url) == []


def test_versions_are_skipped_as_far_as_the_lost_interval_may_have_published(restored_url: str) -> None:
    """A day without NATS, at the rate that the log has never reached; and no partition is made for what stays empty."""
    day = 86_400
    with connect(restored_url) as connection:
        connection.execute(
            "insert into outbox (event_type, occurred_at, correlation_id, subject, payload) values"
            " ('control_plane.restored', clock_timestamp() - make_interval(secs => %s), uuidv7(), 'restores/last',"
            " jsonb_build_object('restored_to', null, 'begun_at', rfc3339(now()), 'closed_at', rfc3339(now()), 'first', null,"
            " 'last', null))",
            (day,),
        )
        connection.execute("select log_advance(1000)")
    before = time.time()
    run_restore(restored_url, lambda *_: None, NO_NATS)
    ((last, previous, _),) = rows_of(restored_url, SKIPPED)
    assert RATE * day <= last - previous <= RATE * (day + 3600 + time.time() - before)
    assert rows_of(restored_url, "select count(*) < 10 from pg_inherits where inhparent = 'log'::regclass") == [(True,)]
    with connect(restored_url) as connection:
        while connection.execute("select log_advance(1000)").fetchone() != (0,):
            continue
    assert kept(restored_url) == []


def test_versions_up_to_the_highest_one_that_an_operator_names_are_skipped(restored_url: str) -> None:
    """Also by a repetition, if an operator learns of it later, and once only."""
    with connect(restored_url) as connection:
        connection.execute("select log_advance(1)")
        restore, _ = gate.begin(connection)
        for highest, reached in ((2**41, 2**41), (2**41, None), (2**42, 2**42)):
            row = connection.execute("select restore_skip_versions(%s, %s)", (restore.epoch, highest)).fetchone()
            assert row is not None
            assert (row[0] is None) if reached is None else row[0] >= reached
    steps: list[str] = []
    run_restore(restored_url, lambda step, said: steps.append(f"{step}: {said}"), NO_NATS, 2**43)
    skipped = rows_of(restored_url, SKIPPED)
    assert [last >= 2**power for (last, _, _), power in zip(skipped, (41, 42, 43), strict=True)] == [True] * 3
    assert f"versions: up to {skipped[-1][0]} are skipped" in " ".join(steps)
    assert kept(restored_url) == []


@pytest.mark.full
def test_a_restore_that_is_repeated_raises_nothing_twice(restored_url: str) -> None:
    with psycopg.connect(restored_url, autocommit=True) as connection:
        restore, _ = gate.begin(connection)
        raised = connection.execute("select restore_raise_sequences(%s)", (restore.epoch,)).fetchone()
        assert raised == (True,)
        once = drawn(restored_url)
        assert connection.execute("select restore_raise_sequences(%s)", (restore.epoch,)).fetchone() == (False,)
    run_restore(restored_url, lambda *_: None, NO_NATS)
    assert drawn(restored_url)["fences"] == once["fences"]
    for step in (
        "raise_sequences(%s)", "revoke(%s)", "adopt(%s)", "renew_fences(%s)", "end_runs(%s)", "close_nodes(%s)",
        "note_export(%s, 1, sha256('x'))", "waive_export(%s, 'why')", "note_ends(%s, '[]')",
    ):  # fmt: skip
        with connect(restored_url) as connection, pytest.raises(psycopg.DatabaseError, match="is not open"):
            connection.execute(f"select restore_{step}".encode(), (restore.epoch,))


def test_a_new_fence_is_above_all_of_the_lost_interval(restored_url: str, database_url: str) -> None:
    lost = max(fence for (fence,) in rows_of(database_url, "select fence from claims"))
    run_restore(restored_url, lambda *_: None, NO_NATS)
    with connect(restored_url) as connection:
        connection.execute("update claims set fence = nextval('fences') where closed_at is null")
    ((allocation,),) = rows_of(restored_url, "select id from allocations")
    assert claim_of(restored_url, allocation)["fence"] > lost + FENCES // 2


@pytest.mark.full
def test_an_allocation_without_a_task_gets_a_new_fence(database_url: str) -> None:
    """Its node may have carried out its task in the lost interval, and takes no other task under that fence."""
    seeded = seed(database_url)
    known, requested = (create_allocation(database_url, seeded, gpus=2) for _ in range(2))
    run_with(database_url, lambda context: provision(context, database_url, known))
    before = {each: claim_of(database_url, each)["fence"] for each in (known, requested)}
    run_restore(database_url, lambda *_: None, NO_NATS)
    assert claim_of(database_url, requested)["fence"] > before[requested] + FENCES // 2
    assert claim_of(database_url, known)["fence"] == before[known]
    started = rows_of(
        database_url, "select (payload ->> 'fence')::bigint from outbox where event_type = 'provisioning.requested'"
        " and subject = 'allocations/' || %s order by id", requested
    )  # fmt: skip
    assert started == [(before[requested],), (claim_of(database_url, requested)["fence"],)], "a workflow begins anew"
    run_with(database_url, lambda context: provision(context, database_url, requested))
    assert broken_promises(database_url) == {}
    with psycopg.connect(database_url, autocommit=True) as connection:
        restore, _ = gate.begin(connection)
        with pytest.raises(psycopg.DatabaseError, match="its sequences are not raised"):
            connection.execute("select restore_renew_fences(%s)", (restore.epoch,))


@pytest.mark.full
def test_a_node_that_enrols_again_gets_an_epoch_above_those_of_the_lost_interval(
    database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = insert_admin_key(database_url)

    def enrolled(admin: Caller, node: str) -> int:
        enrol(admin, node)
        ((epoch,),) = rows_of(database_url, "select epoch from nodes where id = %s", node)
        return int(epoch)

    with public_process(database_url, tmp_path_factory.mktemp("before")) as http:
        admin = Caller(http, key)
        node = new_node(admin, new_region(admin))["id"]
        assert [enrolled(admin, node), enrolled(admin, node)] == [1, 2]
    run_restore(database_url, lambda *_: None, NO_NATS)
    with public_process(database_url, tmp_path_factory.mktemp("after")) as http:
        admin = Caller(http, key)
        after = enrolled(admin, node)
        assert after > 2**20
        assert enrolled(admin, node) == after + 1
