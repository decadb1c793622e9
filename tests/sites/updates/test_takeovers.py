"""An agent dies at any step of an update: the next one goes on, sends nothing again, and restarts nothing in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.redfish.problems import CertificateChanged
from node_agent.site.lease import LeaseEnded
from orchestrator.maintenance.states import WindowTaskState
from tests.nodes.maintenance_tasks.running import sound
from tests.sites.rotations import Killed
from tests.sites.updates.running import Update, another, nothing, play
from tests.support.bmc.faults import Fault


async def killed_at(update: Update, number: int) -> bool:
    """The first agent performs the task, and dies before this step of it; False if it has ended before."""
    steps = 0

    async def step() -> None:
        nonlocal steps
        *_, before, last = ["", "", *update.machine.service.requests]
        steps += not (before == last and last.startswith("GET"))
        if steps >= number:
            raise Killed

    stage = update.stage
    try:
        await stage.perform(stage.first, update.machine, await stage.take(stage.first, update.machine), step)
    except (Killed, LeaseEnded):
        return True
    return False


@pytest.mark.full
def test_an_agent_that_dies_at_any_step_is_followed_by_one_that_sends_nothing_again(
    database_url: str, tmp_path: Path
) -> None:
    async def scene(first: Update) -> None:
        number, outcomes, update = 1, [], first
        while await _one(update, number):
            outcomes.append(update.ended()[:2])
            assert update.sent() <= 1
            is_done = update.machine.service.machine.firmware == "2.00"
            assert (update.ended()[0] == "completed") is is_done
            assert update.quarantined() == (0 if is_done else 8)
            number += 3
            update = await another(update.stage, update.images)
        assert number > 40
        assert set(outcomes) == {("completed", None), ("interrupted", "bmc_outcome_unknown")}
        assert outcomes.count(("interrupted", "bmc_outcome_unknown")) < len(outcomes) / 2
        sound(database_url)

    async def _one(update: Update, number: int) -> bool:
        update.machine.service.machine.options.update_applies = "host"
        await update.begin()
        died = await killed_at(update, number)
        if update.machine.state()[2] is None:
            await update.perform(update.stage.second)
        await update.advance()
        return died

    play(database_url, tmp_path, scene)


def test_an_agent_that_goes_on_restarts_nothing_while_the_task_is_not_known(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        found = update.machine.service.machine
        found.options.update_applies = "host"
        await update.begin(restart="host")

        async def step() -> None:
            if update.sent():
                raise Killed

        stage = update.stage
        try:
            await stage.perform(stage.first, update.machine, await stage.take(stage.first, update.machine), step)
        except Killed:
            found.tasks.clear()
        await update.perform(stage.second)
        assert await update.advance() is WindowTaskState.INTERRUPTED
        assert update.ended()[1] == "bmc_outcome_unknown"
        assert (found.boots, update.sent(), update.images.paths) == ([], 1, ["/vendor/bmc-2.00.bin"])

    play(database_url, tmp_path, scene)


def test_a_report_under_an_older_lease_ends_nothing_and_a_machine_that_has_the_version_is_left_alone(
    database_url: str, tmp_path: Path
) -> None:
    async def scene(update: Update) -> None:
        update.machine.service.machine.firmware = "2.00"
        await update.begin()
        stage = update.stage
        order = await stage.take(stage.first, update.machine)
        await stage.take(stage.second, update.machine)
        try:
            answer = await stage.perform(stage.first, update.machine, order, nothing)
            assert not answer.applied
        except LeaseEnded:
            pass
        assert await update.advance() is None
        await update.perform(stage.second)
        assert await update.advance() is WindowTaskState.COMPLETED
        assert update.ended()[2] == "nothing was sent: BMC has 2.00 already"
        assert (update.sent(), update.images.paths) == (0, [])

    play(database_url, tmp_path, scene)


def test_a_certificate_that_changes_with_the_update_ends_it_at_once(database_url: str, tmp_path: Path) -> None:
    """With a BMC behind TLS: tests/redfish/test_updates.py."""

    async def scene(update: Update) -> None:
        found, changed = update.machine.service.machine, list[str]()
        found.options.update_effect = changed.append
        await update.begin()

        async def step() -> None:
            if changed and update.machine.state()[2] is None and not reported:
                reported.append(True)
                raise CertificateChanged("another certificate", "ab" * 32)

        reported: list[bool] = []
        stage = update.stage
        await stage.perform(stage.first, update.machine, await stage.take(stage.first, update.machine), step)
        assert await update.advance() is WindowTaskState.FAILED
        assert update.ended()[:2] == ("failed", "bmc_certificate_changed")
        assert update.quarantined() == 8

    play(database_url, tmp_path, scene)


def test_credentials_that_the_update_resets_are_not_tried_again_and_again(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        found = update.machine.service.machine
        found.options.update_restarts = True
        found.options.restart_effect = lambda: found.passwords.update(berth="default")
        await update.whole()
        assert update.ended()[:2] == ("failed", "bmc_not_back")
        assert (found.refused_logins, update.sent()) == (2, 1)

    play(database_url, tmp_path, scene)


def test_a_machine_that_was_off_is_off_again_after_the_restart_that_its_update_needs(
    database_url: str, tmp_path: Path
) -> None:
    async def scene(update: Update) -> None:
        found = update.machine.service.machine
        found.power, found.options.update_applies = "Off", "host"
        assert await update.whole() is WindowTaskState.COMPLETED
        assert (found.power, len(found.boots), found.firmware) == ("Off", 1, "2.00")
        assert (update.ended()[2] or "").endswith("host restarted")

    play(database_url, tmp_path, scene)


def test_what_the_order_names_is_restarted_though_the_task_does_not_say_so(database_url: str, tmp_path: Path) -> None:
    async def scene(update: Update) -> None:
        assert await update.whole(restart="bmc") is WindowTaskState.COMPLETED
        assert update.machine.service.machine.restarts == 1
        other = await another(update.stage, update.images)
        other.machine.service.script.add("GET /taskmon", Fault.ERROR, times=3)
        assert await other.whole(restart="host") is WindowTaskState.COMPLETED
        assert len(other.machine.service.machine.boots) == 1

    play(database_url, tmp_path, scene)
