"""Scenes that need a database alone. Each is the shortest way to where one bug shows; without the bug all is well."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from pydantic import RootModel

from orchestrator.allocations.commands import release as releasing
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.http.operation_keys import operation_in
from orchestrator.operations.execution import Context, Done, Limits, run_once
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import OperationConflict
from orchestrator.tenants.principals import Principal
from tests.allocations.driving import ADMIN, PROVISIONED, WIPED, completed, failed, operation, release, report, task_of
from tests.allocations.seeding import connect, create_allocation, try_create
from tests.campaign.directed.scene import Scene
from tests.campaign.history import Outcome
from tests.support.rival_sessions import until_waiting


def two_creates_at_once(scene: Scene) -> None:
    """Two transactions place on one node, the second one before the first has committed."""
    seeded = scene.seed()

    async def place() -> tuple[uuid.UUID | None, uuid.UUID | None]:
        with connect(scene.url) as first, connect(scene.url) as second:
            first.execute("begin")
            one = try_create(first, seeded, gpus=8)
            placing = asyncio.create_task(asyncio.to_thread(try_create, second, seeded, gpus=8))
            await until_waiting(scene.url)
            first.execute("commit")
            return one, await placing

    one, other = asyncio.run(place())
    allocations = [allocation_id for allocation_id in (one, other) if allocation_id is not None]

    async def both_are_used(context: Context) -> None:
        for allocation_id in allocations:
            await scene.provision(context, allocation_id)
        for allocation_id in allocations:
            scene.look(allocation_id)

    scene.run(both_are_used)


_MOVE_RIGHT = """
update claims set units = (select units from claims where owner_id = %s), occupied = false, occupied_from = null,
                  during = tstzrange(clock_timestamp() + interval '1 day', null)
where owner_id = %s
"""
_MOVE_OCCUPANT = """
update claims set units = (select units from claims where owner_id = %s), booked = false where owner_id = %s
"""


def a_second_right_in_the_future(scene: Scene) -> None:
    """A claim is moved to units and times that another one has the right to."""
    _move(scene, _MOVE_RIGHT)


def a_second_occupant(scene: Scene) -> None:
    """A claim whose right is over is moved, still occupied, to units that another one occupies."""
    _move(scene, _MOVE_OCCUPANT)


def _move(scene: Scene, statement: str) -> None:
    seeded = scene.seed()
    one, other = create_allocation(scene.url, seeded), create_allocation(scene.url, seeded)
    with connect(scene.url) as connection:
        try:
            connection.execute(statement.encode(), (one, other))
        except psycopg.errors.ExclusionViolation:
            return


def a_create_while_units_come_back(scene: Scene) -> None:
    """One transaction places on a node while another, not waiting for it, gives units of the node back."""
    seeded = scene.seed()
    going = create_allocation(scene.url, seeded, gpus=2)

    async def release_half_way(context: Context) -> None:
        await scene.provision(context, going)
        await release(context, seeded, going)
        await begin_release(context, going, "releasing")
        task = task_of(scene.url, going)
        scene.journal(task, completed(task, WIPED))
        await report(context, task, completed(task, WIPED))

    async def finish(context: Context) -> None:
        await finish_release(context, going, "releasing")

    async def finish_while_placing(context: Context) -> None:
        with connect(scene.url) as placing:
            placing.execute("begin")
            assert try_create(placing, seeded, gpus=2) is not None
            finishing = asyncio.create_task(finish(context))
            await until_waiting(scene.url)
            placing.execute("commit")
            await finishing

    scene.run(release_half_way)
    scene.run(finish_while_placing)


def a_create_before_cleanup(scene: Scene) -> None:
    """A full node: its one tenant asks for the release, and another wants the slots before anything is removed."""
    seeded = scene.seed()
    going = create_allocation(scene.url, seeded, gpus=8)
    scene.run(lambda context: scene.provision(context, going))
    scene.run(lambda context: release(context, seeded, going))
    with connect(scene.url) as connection:
        coming = try_create(connection, seeded, gpus=8)
    if coming is not None:
        scene.look(coming)
    scene.run(lambda context: scene.clean_up(context, going))


def a_result_after_the_release(scene: Scene) -> None:
    """A node reports a provision that a release has made worthless meanwhile."""
    seeded = scene.seed()
    allocation_id = create_allocation(scene.url, seeded)

    async def play(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "provisioning")
        late = task_of(scene.url, allocation_id)
        await release(context, seeded, allocation_id)
        await report(context, late, completed(late, PROVISIONED))

    scene.run(play)


def one_key_twice_at_once(scene: Scene) -> None:
    """Two forced releases with one key arrive together, as when a client loses patience."""
    seeded = scene.seed()
    allocation_id = create_allocation(scene.url, seeded)

    async def play(context: Context) -> None:
        same = operation(seeded, "one-key")

        async def send() -> Answer:
            return await force_release(context, same, ADMIN, allocation_id, "scene")

        for answer in await asyncio.gather(send(), send()):
            scene.told("force_release", "one-key", str(allocation_id), answer, allocation_id)
        await scene.clean_up(context, allocation_id)

    scene.run(play)


def one_key_two_contents(scene: Scene) -> None:
    """A key comes again with another body."""
    seeded = scene.seed()
    principal = Principal("member", uuid.uuid4(), seeded.tenant_id)

    async def play(context: Context) -> None:
        for gpus in (1, 2):
            content = {"gpus": gpus, "labels": {"nested": str(gpus)}}
            scope = {
                "method": "POST",
                "path": "/api/v1/allocations",
                "query_string": b"",
                "state": {"request_id": None},
            }
            asked = operation_in(scope, principal, "one-key", RootModel[Any](content), 3600.0)

            async def make(_: object) -> Done:
                return Done(200, {})

            try:
                answer = await run_once(context, asked, make, seeded.tenant_id)
            except OperationConflict:
                scene.write("release", "one-key", json.dumps(content), Outcome.CONFLICT)
            else:
                scene.told("release", "one-key", json.dumps(content), answer)

    scene.run(play)


def a_look_before_the_deadline(scene: Scene) -> None:
    """The worker checks a provision whose node has a minute left."""
    seeded = scene.seed()
    allocation_id = create_allocation(scene.url, seeded)

    async def play(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "provisioning")
        scene.look(allocation_id)
        await finish_provisioning(context, allocation_id)
        scene.look(allocation_id)

    scene.run(play, Limits(provision_seconds_max=60))


def a_task_that_failed(scene: Scene) -> None:
    """A node reports that it could not provision; the workflow is woken."""
    seeded = scene.seed()
    allocation_id = create_allocation(scene.url, seeded)

    async def play(context: Context) -> None:
        await begin_provisioning(context, allocation_id, "provisioning")
        await scene.node_reports(context, allocation_id, failed(task_of(scene.url, allocation_id)))
        await finish_provisioning(context, allocation_id)
        scene.look(allocation_id)

    scene.run(play)


def a_release_that_began_first_and_won_last(scene: Scene) -> None:
    """A release writes its key (and so has the older transaction), then waits for a provision that becomes active."""
    seeded = scene.seed()
    allocation_id = create_allocation(scene.url, seeded)
    scene.sequence()
    genuine = vars(releasing)["lock_allocation"]

    async def play(context: Context) -> None:
        begun, may_go_on = asyncio.Event(), asyncio.Event()

        async def paused(*arguments: Any) -> Any:
            begun.set()
            await may_go_on.wait()
            return await genuine(*arguments)

        await begin_provisioning(context, allocation_id, "provisioning")
        await scene.node_reports(context, allocation_id)
        with paused_there(paused):
            release_ = asyncio.create_task(release(context, seeded, allocation_id))
            await begun.wait()
            await finish_provisioning(context, allocation_id)
            may_go_on.set()
            await release_

    scene.run(play)


@contextmanager
def paused_there(paused: object) -> Iterator[None]:
    """Releases wait where they would lock the allocation, having stored their key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releasing, "lock_allocation", paused)
        yield


def a_create_that_was_rolled_back(scene: Scene) -> None:
    """A transaction that left an event is rolled back; the next one is not."""
    seeded = scene.seed()
    with connect(scene.url) as connection:
        connection.execute("begin")
        assert try_create(connection, seeded) is not None
        connection.execute("rollback")
    create_allocation(scene.url, seeded)
