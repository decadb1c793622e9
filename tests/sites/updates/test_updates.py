"""A window updates the firmware of a machine: the version read back proves it, or the machine stays out of service."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.maintenance.states import WindowTaskState
from tests.nodes.maintenance_tasks.running import ended_events, sound
from tests.sites.updates.running import Update, play
from tests.support.bmc.faults import Fault

Change = Callable[[Update], None]


def test_firmware_is_updated_and_the_units_return(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        assert await update.whole() is WindowTaskState.COMPLETED
        found = update.machine.service.machine
        assert update.ended() == (
            "completed",
            None,
            "BMC: 1.00 before, 2.00 after; the BMC states 2.00, and 1.00 before",
        )
        assert (update.sent(), found.effects, found.power) == (1, ["update"], "On")
        (image,) = found.images
        assert image.startswith("http://first/firmware/"), "the BMC is sent to the agent"
        assert image.endswith("/bmc-2.00.bin")
        assert update.images.paths == ["/vendor/bmc-2.00.bin"]
        assert update.served() == 0, "the path is of this task alone"
        assert update.quarantined() == 0
        assert update.row("select not bool_or(occupied) from claims where node_id = %s", update.node)[0]
        shown = update.row("select inventory -> 'manager' ->> 'firmware_version' from node_bmcs")[0]
        assert shown == "2.00", "what the BMC says afterwards is recorded"
        assert ended_events(database_url) == [("completed", None)]
        sound(database_url)

    play(database_url, tmp_path, scene)


def _option(**options: Any) -> Change:
    def change(update: Update) -> None:
        for name, value in options.items():
            setattr(update.machine.service.machine.options, name, value)

    return change


def _fault(fault: Fault, match: str = "POST .*SimpleUpdate", times: int = 1) -> Change:
    return lambda update: update.machine.service.script.add(match, fault, times=times)


def _both(*changes: Change) -> Change:
    def change(update: Update) -> None:
        for one in changes:
            one(update)

    return change


UNKNOWN = ("interrupted", "bmc_outcome_unknown")


@pytest.mark.quick("bmc-reset", "error", "lost", "lie", "other-version")
@pytest.mark.parametrize(
    ("change", "found", "sent"),
    [
        (_option(tasks=False), ("completed", None), 1),
        (_option(update_restarts=True), ("completed", None), 1),
        (_option(update_applies="host"), ("completed", None), 1),
        (_option(update_applies="bmc"), ("completed", None), 1),
        (_fault(Fault.BROKEN_AFTER), ("completed", None), 1),
        (_fault(Fault.NO_ANSWER_WITH_EFFECT), ("completed", None), 1),
        (_fault(Fault.ERROR_WITH_EFFECT), ("completed", None), 1),
        (_both(_option(tasks=False), _fault(Fault.ERROR_WITH_EFFECT)), ("completed", None), 1),
        (_fault(Fault.ERROR, "GET /taskmon", 30), ("completed", None), 1),
        (_fault(Fault.BUSY, "GET /taskmon", 30), ("completed", None), 1),
        (_fault(Fault.ERROR), UNKNOWN, 1),
        (_fault(Fault.NO_ANSWER), UNKNOWN, 1),
        (_option(task_seconds=math.inf), UNKNOWN, 1),
        (_option(task_state="Exception"), ("failed", "bmc_task_failed"), 1),
        (_both(_option(tasks=False), _fault(Fault.LIE)), ("failed", "bmc_without_effect"), 1),
        (_option(update_version="1.99"), ("failed", "firmware_other_version"), 1),
        (_option(update_restarts=True, restart_seconds=math.inf), ("failed", "bmc_not_back"), 1),
        (_fault(Fault.BUSY), ("not_run", "bmc_busy"), 1),
    ],
    ids=[
        "no-task", "restarts-and-forgets", "host-reset", "bmc-reset", "broken", "silent", "error-with-effect",
        "error-without-task", "task-500", "task-503", "error", "lost", "endless", "failed", "lie", "other-version", "gone",
        "busy",
    ],
)  # fmt: skip
def test_only_the_version_read_back_completes_it(
    database_url: str, tmp_path: Path, change: Change, found: tuple[str, str | None], sent: int
) -> None:
    async def scene(update: Update) -> None:
        change(update)
        await update.whole()
        assert update.ended()[:2] == found
        assert update.sent() == sent, "it is sent once, whatever it was answered"
        state = found[0]
        assert update.quarantined() == (8 if state in ("failed", "interrupted") else 0)
        assert update.row("select not bool_or(occupied) from claims where node_id = %s", update.node)[0]
        assert "1.00 before" in (update.ended()[2] or "")
        sound(database_url)

    play(database_url, tmp_path, scene)
