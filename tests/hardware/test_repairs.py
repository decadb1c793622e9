"""Repairs are opened and closed once, by serial number, and are part of its history."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from orchestrator.nodes.commands.repairs import close_repair, open_repair, retire_hardware
from orchestrator.nodes.hardware.queries import count_hardware, find_hardware, list_repairs
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import NotFound
from tests.allocations.driving import ADMIN, rows_of, run_with
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import connect, seed
from tests.hardware.reporting import close, history_of, machine, repair, serials, take
from tests.nodes.answers import body_of

YEARS = 157_680_000.0
FIRST = uuid.UUID(int=0)


def code(answer: Answer) -> tuple[int, Any]:
    """Status and code of a refusal."""
    return answer.status, body_of(answer).get("code")


def test_a_repair_is_opened_and_closed_once(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Answer]:
        await take(context, database_url, node, machine(serials("A")))
        write = admin_operation()
        opened = await open_repair(context, write, ADMIN, serial="A-0001", reason="XID 79")
        again = await open_repair(context, write, ADMIN, serial="A-0001", reason="XID 79")
        second = await repair(context, "A-0001")
        shown = await find_hardware(context.database, "A-0001")
        assert shown["open_repair"] == body_of(opened)
        assert (await count_hardware(context))["in_repair"] == 1
        closed = await close(context, body_of(opened)["id"])
        twice = await close(context, body_of(opened)["id"])
        third = await repair(context, "A-0001", reason="again")
        return [opened, again, second, closed, twice, third]

    opened, again, second, closed, twice, third = run_with(database_url, way)
    assert (opened.status, again.body) == (201, opened.body)
    assert code(second) == (409, "invalid_state")
    assert body_of(opened)["id"] in body_of(second)["detail"]
    assert (closed.status, body_of(closed)["result"]) == (200, "reseated")
    assert code(twice) == (409, "invalid_state")
    assert third.status == 201
    assert [what for what, _ in history_of(database_url, "A-0001")] == [
        "seen", "repair_opened", "repair_closed", "repair_opened",
    ]  # fmt: skip
    actions = rows_of(
        database_url, "select action, subject from audit where action like 'repair.%%' and code = 'ok' order by at"
    )
    assert actions == [
        ("repair.open", f"repairs/{body_of(opened)['id']}"),
        ("repair.close", f"repairs/{body_of(opened)['id']}"),
        ("repair.open", f"repairs/{body_of(third)['id']}"),
    ]


def test_what_is_not_known_is_refused_and_changes_nothing(database_url: str) -> None:
    seed(database_url)

    async def way(context: Context) -> tuple[Answer, Answer, str]:
        try:
            await find_hardware(context.database, "A-0001")
        except NotFound as refused:
            said = refused.detail
        return await repair(context, "A-0001"), await close(context, str(uuid.uuid4())), said

    opened, closed, said = run_with(database_url, way)
    assert code(opened) == code(closed) == (404, "not_found")
    assert "A-0001" in said
    assert rows_of(database_url, "select from hardware_repairs") == []
    assert rows_of(database_url, "select from hardware_history") == []


def test_of_two_repairs_at_once_one_is_opened(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Answer]:
        await take(context, database_url, node, machine(serials("A")))
        return list(await asyncio.gather(*(repair(context, "A-0001") for _ in range(4))))

    answers = run_with(database_url, way)
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]
    assert rows_of(database_url, "select count(*) from hardware_repairs") == [(1,)]


def test_of_two_closings_at_once_one_counts(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[Answer]:
        await take(context, database_url, node, machine(serials("A")))
        opened = body_of(await repair(context, "A-0001"))["id"]
        return list(await asyncio.gather(*(close(context, opened, result=str(number)) for number in range(4))))

    answers = run_with(database_url, way)
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409]
    assert [what for what, _ in history_of(database_url, "A-0001")].count("repair_closed") == 1


def test_lists_have_open_ones_or_all_and_those_of_a_piece(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[list[str]]:
        await take(context, database_url, node, machine(serials("A")))
        first = body_of(await repair(context, "A-0001"))["id"]
        await close_repair(context, admin_operation(), ADMIN, uuid.UUID(first), result="reseated")
        await repair(context, "A-0001")
        await repair(context, "A-0002")
        found = []
        for serial, every in ((None, False), (None, True), ("A-0001", False), ("A-0001", True)):
            listed = await list_repairs(context.database, serial=serial, every=every, after=FIRST, limit=10)
            found.append([one.serial for one in listed])
        return found

    assert run_with(database_url, way) == [
        ["A-0001", "A-0002"], ["A-0001", "A-0001", "A-0002"], ["A-0001"], ["A-0001", "A-0001"],
    ]  # fmt: skip


def test_history_and_closed_repairs_are_kept_for_their_retention(database_url: str) -> None:
    node = seed(database_url).nodes[0].id

    async def way(context: Context) -> list[int]:
        await take(context, database_url, node, machine(serials("A")))
        await close(context, body_of(await repair(context, "A-0001"))["id"])
        await repair(context, "A-0002")
        kept = await retire_hardware(context, YEARS, 100)
        with connect(database_url) as connection:
            connection.execute("set session_replication_role = replica")
            connection.execute("update hardware_history set happened_at = happened_at - interval '6 years'")
            connection.execute("update hardware_repairs set closed_at = closed_at - interval '6 years'")
        return [kept, await retire_hardware(context, YEARS, 5), await retire_hardware(context, YEARS, 100)]

    assert run_with(database_url, way) == [0, 6, 6]
    assert rows_of(database_url, "select serial from hardware_repairs") == [("A-0002",)], "an open one stays"
    assert rows_of(database_url, "select count(*) from hardware_places") == [(8,)]
