"""A maintenance window through every component: planned, committed, waited for, run on real agents, and over by itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from berth.client import Allocation, ResourceBusy, SkuUnavailable
from berth.client.reservation_models import Reservation
from berth.local.stack import Stack
from orchestrator.crash_points import CrashPoint
from tests.crashes.stage import Stage, options
from tests.support.waiting import wait_for
from tests.webhooks.receivers import Receiver, receiving
from tests.whole.maintaining import HOLDER, PLUGIN, SECONDS_MIN, TASK_SECONDS, Story, install_plugin

BUSY, IDLE, NEIGHBOUR = Story.busy, Story.idle, Story.neighbour
SLOTS = ",".join(map(str, range(8)))
BEGUN, SIGNED = f"{CrashPoint.ADVANCE_WINDOW_AFTER_COMMIT}:1", f"{CrashPoint.ADVANCE_TASK_AFTER_COMMIT}:1"
COMMIT = f"--allocations notify --reservations move --task plugin --plugin {PLUGIN} --task-timeout {TASK_SECONDS}"


@pytest.fixture(scope="module")
def plugins(server_directory: Path) -> Path:
    """The folder of maintenance plugins of every agent."""
    return install_plugin(server_directory / "maintenance" / "plugins")


@pytest.fixture(scope="module")
def stage(server_directory: Path, plugins: Path) -> Iterator[Stage]:
    """Two nodes with slices in eu-1 and one in us-1, of the test build."""
    of_agents = {"BERTH_AGENT_MAINTENANCE_PLUGINS_DIR": str(plugins)}
    with Stack(options(server_directory / "maintenance" / "var", 4, of_agents)) as stack:
        yield Stage(stack)


@pytest.mark.timeout(400)
@pytest.mark.full
@pytest.mark.parametrize("sooner", [True, False], ids=["sooner", "in-its-time"])
def test_a_window_is_planned_waits_runs_its_task_and_ends_by_itself(
    stage: Stage, plugins: Path, *, sooner: bool
) -> None:
    """The worker is killed when the window has begun, and again when the first task is signed."""
    (plugins / "runs").unlink(missing_ok=True)
    story = Story(stage, plugins, stage.tenant(), stage.tenant(), 3_600 if sooner else SECONDS_MIN)
    with receiving() as (receiver,):
        story.tenant.client.create_webhook(url=receiver.url, types=["allocation.maintenance"])
        with story.without(NEIGHBOUR):
            rented = story.allocation_on(BUSY, 1, "eu-1")
            story.schedule()
            reserved = story.reserve(2)
        _require_planned(story, rented, reserved)
        for ended in story.races(4):
            assert ended in ({"made", "resource_busy"}, {"made", "maintenance_conflict"})
        with stage.armed("worker", BEGUN):
            window = story.berth(f"commit {story.span} --reason 'new firmware' {COMMIT}")
            _require_committed(story, window, rented, reserved, receiver)
            stage.await_death("worker", BEGUN)
    window_id = UUID(window["window_id"])
    with stage.armed("worker", SIGNED):
        stage.await_death("worker", SIGNED)
    wait_for(lambda: story.runs() == [SLOTS], "the agent runs the task while no worker does")
    stage.start("worker")
    story.await_completed(window_id, IDLE)
    waiting = story.tasks(window_id)[BUSY]
    assert (waiting["state"], waiting["waits_for"], waiting["begun_at"]) == ("waiting", "units", None)
    assert story.tenant.client.get_resource(story.slot(IDLE, 0)).state == "out_of_service"
    with story.without(NEIGHBOUR):
        story.tenant.client.release_allocation(rented.allocation_id)
        # No wait: the units are claimed in the transaction that ended the right of the allocation.
        assert stage.admin.get_maintenance(window_id).planned == []
        assert story.claimed(window_id) == {BUSY: 8, IDLE: 8}
        with pytest.raises(SkuUnavailable):
            story.tenant.create(region="eu-1")
    assert story.available("eu-1")[0] == 6
    story.await_completed(window_id, BUSY)
    assert [one["evidence"] for one in story.tasks(window_id).values()] == ["BIOS 1.2"] * 2
    story.await_end(window_id, sooner=sooner)
    assert story.runs() == [SLOTS] * 2
    steps = ("scheduled", "started", "task_ended", "task_ended", "ended")
    story.events(f"maintenance/{window_id}", *(f"maintenance.{step}" for step in steps))
    _require_rentable(story)
    story.other.client.cancel_reservation(reserved.reservation_id, holder_id=HOLDER)
    assert stage.violations_at_rest() == []


def _require_planned(story: Story, rented: Allocation, reserved: Reservation) -> None:
    """A plan names each claim in the way and a refused commit too, and neither changes anything."""
    held = story.hold(story.slot(IDLE, 3))
    before = story.claims()
    conflicts = story.berth(f"plan {story.span}")["items"]
    found = {one["owner"]: (one["resolution"], one["ends_at"] is None) for one in conflicts}
    assert found == {
        f"allocations/{rented.allocation_id}": ("notify", True),
        f"reservations/{reserved.reservation_id}": ("move", False),
        f"reservations/{held.reservation_id}": ("refuse", False),
    }
    refused = story.berth(f"commit {story.span} --reason 'new firmware' {COMMIT}", refused="maintenance_conflict")
    assert [one["owner"] for one in refused["conflicts"]] == [f"reservations/{held.reservation_id}"]
    assert story.claims() == before
    assert story.available("us-1")[0] == 7
    story.free(held)


def _require_committed(
    story: Story, window: Any, rented: Allocation, reserved: Reservation, receiver: Receiver
) -> None:
    """Everything but the unit of the allocation is claimed; the tenants know, and nothing else gets the units."""
    window_id, (slot,) = UUID(window["window_id"]), rented.slots or []
    planned = story.slot(BUSY, slot)
    assert (window["state"], window["planned"], len(window["tasks"])) == ("scheduled", [planned], 2)
    assert story.claimed(window_id) == {BUSY: 7, IDLE: 8}
    assert story.claims_of_planned(window_id) == 0
    steps = ("held", "confirmed", "moved")
    story.events(f"reservations/{reserved.reservation_id}", *(f"reservation.{step}" for step in steps))
    assert {slot.split(":")[1] for slot in story.other.client.get_reservation(reserved.reservation_id).resources} == {
        str(story.node(NEIGHBOUR).id)
    }
    wait_for(lambda: len(receiver.received) == 1, "the tenant's webhook is called")
    message = receiver.received[0].document
    assert message["type"] == "berth.allocation.maintenance"
    data = message["data"]
    assert (data["allocation_id"], data["window_id"]) == (str(rented.allocation_id), str(window_id))
    assert datetime.fromisoformat(data["deadline"]) == story.starts_at
    available, earliest = story.available("us-1")
    assert available == 0
    assert earliest is not None
    assert earliest >= story.ends_at
    assert (story.available("eu-1")[0], story.free_now("us-1")) == (6, 0)
    for region, gpus in (("us-1", 1), ("eu-1", 8)):
        with pytest.raises(SkuUnavailable):
            story.tenant.create(region=region, gpus=gpus)
    with pytest.raises(ResourceBusy):
        story.hold(planned)


def _require_rentable(story: Story) -> None:
    """Every unit of the window is rented again, without an end."""
    assert story.free_now("us-1") == 8
    assert story.tenant.client.get_resource(story.slot(IDLE, 0)).state == "available"
    with story.without(NEIGHBOUR):
        rented = [story.allocation_on(BUSY, 8, "eu-1"), story.allocation_on(IDLE, 8, "us-1")]
    for one in rented:
        story.tenant.client.release_allocation(one.allocation_id)
        story.tenant.wait(one, "released")
