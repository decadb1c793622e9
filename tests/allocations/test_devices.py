"""The virtual devices of a guest: what a node reports, what is refused, and what an operator reads."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from node_agent.protocol import RESULT_BYTES_MAX, VerbResult
from node_agent.wire.devices import DEVICES_MAX, EVIDENCE
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.verbs import begin_verb, finish_verb, order_verb
from orchestrator.allocations.queries import find_devices
from orchestrator.allocations.states import Verb
from orchestrator.allocations.store import devices as store
from orchestrator.operations.execution import Context
from orchestrator.problems import Invalid, NotFound, TooLarge
from tests.allocations.driving import (
    CONNECTION,
    PROVISIONED,
    TENANT,
    completed,
    operation,
    release,
    report,
    run_with,
    task_of,
)
from tests.allocations.seeding import connect, create_allocation, seed

DISK = {"name": "disk vda", "model": "virtio", "address": "pci 0000:02:00.0"}
CARD = {"name": "interface net0", "model": "virtio-net-pci", "address": None}
Way = Callable[[Context, uuid.UUID], Awaitable[None]]


def devices(*found: dict[str, Any]) -> dict[str, Any]:
    """The evidence of an agent that read these devices."""
    return {EVIDENCE: {"devices": [{k: v for k, v in device.items() if v is not None} for device in found]}}


class Scene:
    """One allocation, and a node that reports evidence."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seeded = seed(url, slice_nodes=1)

    def play(self, way: Way) -> None:
        """Run `way` with a new allocation."""
        allocation_id = create_allocation(self.url, self.seeded, gpus=1)
        run_with(self.url, lambda context: way(context, allocation_id))

    async def provision(self, context: Context, allocation_id: uuid.UUID, evidence: dict[str, Any]) -> None:
        await begin_provisioning(context, allocation_id, "wf")
        task = task_of(self.url, allocation_id)
        await report(context, task, completed(task, {**PROVISIONED, "evidence": evidence}))
        await finish_provisioning(context, allocation_id)

    async def verb(self, context: Context, allocation_id: uuid.UUID, verb: Verb, evidence: dict[str, Any]) -> None:
        await order_verb(context, operation(self.seeded), TENANT, self.seeded.tenant_id, allocation_id, verb)
        await begin_verb(context, allocation_id, "wf")
        task = task_of(self.url, allocation_id)
        where = None if verb is Verb.STOP else CONNECTION
        result = VerbResult.model_validate({"connection": where, "evidence": evidence}).model_dump(mode="json")
        await report(context, task, completed(task, result))
        await finish_verb(context, allocation_id)


@pytest.fixture
def scene(database_url: str) -> Scene:
    return Scene(database_url)


def test_the_devices_of_the_newest_start_are_read(scene: Scene) -> None:
    async def way(context: Context, allocation_id: uuid.UUID) -> None:
        before = await find_devices(context.database, allocation_id)
        assert (before["devices"], before["task_id"], before["read_at"]) == (None, None, None)
        assert (before["status"], before["reason"]) == ("requested", "no guest of this allocation was started")
        await scene.provision(context, allocation_id, devices(DISK))
        first = await find_devices(context.database, allocation_id)
        task = task_of(scene.url, allocation_id)
        assert (first["devices"], first["reason"], first["status"]) == ([DISK], None, "active")
        assert (first["allocation_id"], first["task_id"]) == (str(allocation_id), str(task["id"]))
        for verb in (Verb.REBOOT, Verb.REBUILD):
            await scene.verb(
                context, allocation_id, verb, devices(DISK, CARD) if verb is Verb.REBOOT else devices(CARD)
            )
            expected = [DISK, CARD] if verb is Verb.REBOOT else [CARD]
            assert (await find_devices(context.database, allocation_id))["devices"] == expected
        await scene.verb(context, allocation_id, Verb.STOP, {})
        assert (await find_devices(context.database, allocation_id))["devices"] == [CARD], "those of the last start"
        await scene.verb(context, allocation_id, Verb.START, devices(DISK))
        assert (await find_devices(context.database, allocation_id))["devices"] == [DISK]
        await release(context, scene.seeded, allocation_id)
        after = await find_devices(context.database, allocation_id)
        assert (after["devices"], after["status"]) == ([DISK], "releasing")
        with pytest.raises(NotFound):
            await find_devices(context.database, uuid.uuid4())

    scene.play(way)


@pytest.mark.parametrize(
    ("evidence", "found", "reason"),
    [
        ({}, None, "the agent reported no devices: it is of an earlier version, or its driver has none"),
        ({"left_out": "70000 bytes are too many"}, None, "the agent left the evidence out: it was too large for one message"),
        ({EVIDENCE: {"reason": "libvirt: no answer"}}, None, "libvirt: no answer"),
        ({EVIDENCE: {"devices": [], "reason": "a process"}}, [], "a process"),
    ],
)  # fmt: skip
def test_without_devices_there_is_a_reason(
    scene: Scene, evidence: dict[str, Any], found: list[Any] | None, reason: str
) -> None:
    async def way(context: Context, allocation_id: uuid.UUID) -> None:
        await scene.provision(context, allocation_id, evidence)
        read = await find_devices(context.database, allocation_id)
        assert (read["devices"], read["reason"]) == (found, reason)

    scene.play(way)


def test_an_older_agent_hides_what_a_newer_one_reported(scene: Scene) -> None:
    """The node's agent was rolled back between two starts: what it read before is no longer known to be so."""

    async def way(context: Context, allocation_id: uuid.UUID) -> None:
        await scene.provision(context, allocation_id, devices(DISK))
        await scene.verb(context, allocation_id, Verb.REBOOT, {})
        read = await find_devices(context.database, allocation_id)
        assert read["devices"] is None
        assert "earlier version" in read["reason"]

    scene.play(way)


LIES = {
    "too many": devices(*({"name": f"disk {n}"} for n in range(DEVICES_MAX + 1))),
    "unprintable": devices({"name": "disk \x1b[2J"}),
    "no ASCII": devices({"name": "disk \u202e"}),
    "one twice": devices(DISK, DISK),
    "long": devices({"name": "x" * 65}),
    "no reason": {EVIDENCE: {"devices": []}},
    "no list": {EVIDENCE: {"devices": {"disk": 1}}},
    "nothing": {EVIDENCE: None},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_report_that_is_not_valid_changes_nothing(scene: Scene, lie: str) -> None:
    async def way(context: Context, allocation_id: uuid.UUID) -> None:
        with pytest.raises(Invalid) as refused:
            await scene.provision(context, allocation_id, LIES[lie])
        (error,) = refused.value.extra["errors"]
        assert error["field"].startswith("result.evidence.guest_devices")
        assert task_of(scene.url, allocation_id)["state"] in ("queued", "dispatched")
        await scene_continues(context, allocation_id)

    async def scene_continues(context: Context, allocation_id: uuid.UUID) -> None:
        """The same task accepts an honest report, and a verb refuses the same lie."""
        task = task_of(scene.url, allocation_id)
        await report(context, task, completed(task, {**PROVISIONED, "evidence": devices(DISK)}))
        await finish_provisioning(context, allocation_id)
        with pytest.raises(Invalid):
            await scene.verb(context, allocation_id, Verb.REBOOT, LIES[lie])
        assert (await find_devices(context.database, allocation_id))["devices"] == [DISK]

    scene.play(way)


def test_a_hundred_thousand_devices_are_too_large(scene: Scene) -> None:
    many = devices(*({"name": f"disk {n}"} for n in range(100_000)))
    assert len(json.dumps(many)) > RESULT_BYTES_MAX

    async def way(context: Context, allocation_id: uuid.UUID) -> None:
        with pytest.raises(TooLarge):
            await scene.provision(context, allocation_id, many)
        assert (await find_devices(context.database, allocation_id))["task_id"] is None

    scene.play(way)


@pytest.mark.parametrize("stored", ["7", '"x"', "[]", '{"devices": [{"name": "a\\nb"}]}', '{"devices": null}', "null"])
def test_what_an_older_control_plane_stored_is_never_an_error(scene: Scene, stored: str) -> None:
    async def way(context: Context, allocation_id: uuid.UUID) -> None:
        await scene.provision(context, allocation_id, devices(DISK))
        with connect(scene.url) as connection:
            connection.execute(
                "update node_tasks set result = jsonb_set(result, '{evidence,guest_devices}', cast(%s as jsonb))"
                " where allocation_id = %s",
                (stored, allocation_id),
            )
        read = await find_devices(context.database, allocation_id)
        assert read["devices"] is None
        assert read["reason"]

    scene.play(way)


_EARLIER_REBOOTS = """
insert into node_tasks (id, node_id, node_epoch, type, allocation_id, fence, state, envelope, not_before, expires_at, queued_at,
                        finished_at, result)
select gen_random_uuid(), node_id, node_epoch, 'allocation.reboot',
       case when n <= 2000 then allocation_id else gen_random_uuid() end, fence, 'completed', '{}', not_before, expires_at,
       queued_at - n * interval '1 second', finished_at, result
from node_tasks, generate_series(1, 20000) n where allocation_id = %s
"""


def test_the_newest_of_many_tasks_is_found_by_one_row_of_an_index(scene: Scene) -> None:
    async def way(context: Context, allocation_id: uuid.UUID) -> None:
        await scene.provision(context, allocation_id, devices(DISK))
        newest = str(task_of(scene.url, allocation_id)["id"])
        with connect(scene.url) as connection:
            connection.execute(_EARLIER_REBOOTS, (allocation_id,))
            connection.execute("analyze node_tasks")
            statement = "explain (analyze, buffers off) " + store._READ.replace(":id", "%s")
            plan = "\n".join(row[0] for row in connection.execute(statement, (allocation_id,)).fetchall())
        assert re.search(r"Index Scan Backward using tasks_by_allocation.* rows=1(\.00)? ", plan), plan
        assert (await find_devices(context.database, allocation_id))["task_id"] == newest

    scene.play(way)
