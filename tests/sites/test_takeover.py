"""Two agents of one site: one holds the lease, the other goes on where a killed one stopped (issue 14, section 1)."""

from __future__ import annotations

import os
import signal
import uuid

import pytest

from berth.process.sealed_passwords import Purpose, unseal
from node_agent.site.crash_points import CrashPoint
from tests.sites.stage import FIRST_PASSWORD, Machine, Site, Stage
from tests.support.bmc.machine import Options
from tests.support.waiting import wait_for

POWER = tuple(point for point in CrashPoint if point.startswith("power."))
BOOTS = tuple(point for point in CrashPoint if point.startswith(("start.", "end.")))
EJECT = tuple(point for point in CrashPoint if point.startswith("eject."))
RESETTING = CrashPoint.RESET_AFTER_BACK
FIRMWARE = tuple(point for point in CrashPoint if point.startswith("firmware."))
PORTS = tuple(point for point in CrashPoint if point.startswith("ports."))
"""tests/sites/ports/test_killed_agents.py."""
_OTHERS = (*POWER, *BOOTS, *EJECT, *FIRMWARE, *PORTS, RESETTING)
ROTATING = tuple(point for point in CrashPoint if point not in _OTHERS)
QUICK = (CrashPoint.ROTATION_AFTER_CHANGED,)


def recovered_password(stage: Stage, site: Site, machine: Machine, generation: int) -> str:
    """The present password as the recovery key opens it."""
    sealed = stage.fleet.one(
        "select sealed from bmc_credentials where node_id = %s and recipient = %s and generation = %s",
        machine.node_id, site.id, generation,
    )  # fmt: skip
    purpose = Purpose(uuid.UUID(site.id), uuid.UUID(machine.node_id), generation)
    return unseal(str(sealed), purpose, uuid.UUID(site.id), site.recovery)


@pytest.mark.full
@pytest.mark.parametrize(
    "point", [point if point in QUICK else pytest.param(point, marks=pytest.mark.full) for point in ROTATING]
)
def test_a_standby_finishes_a_rotation_that_a_killed_agent_began(stage: Stage, site: Site, point: CrashPoint) -> None:
    first = site.agent("first", crash_at=f"{point}:1")
    site.wait_for_holder("first")
    second = site.agent("second")
    assert second.metric("berth_site_agent_lease_held") == 0
    with stage.machine() as machine:
        site.put_bmc(machine)
        stage.request(machine.node_id, "rotate")
        wait_for(first.died, "the first agent kills itself", 30)
        found = stage.ended(machine.node_id)
        assert (found["task"]["outcome"], found["task"]["failure"]) == ("completed", None)
        assert (found["generation"], found["pending_generation"]) == (2, None)
        assert machine.password != FIRST_PASSWORD
        assert machine.password == recovered_password(stage, site, machine, 2)
        assert machine.service.machine.effects.count("password") == 1, "the password is changed once"
        if point is not CrashPoint.REPORT_AFTER_ANSWER:
            assert second.metric("berth_site_agent_lease_held") == 1
        assert second.stop() == 0
        assert site.holder() != "second", "an orderly stop gives the lease up"


@pytest.mark.full
def test_a_standby_proves_a_reset_of_a_bmc_that_a_killed_agent_began(stage: Stage, site: Site) -> None:
    """Quicker, at each request of the agent: tests/sites/resets/test_resets.py."""
    first = site.agent("first", crash_at=f"{RESETTING}:1")
    site.wait_for_holder("first")
    site.agent("second")
    with stage.machine() as machine:
        site.put_bmc(machine)
        stage.request(machine.node_id, "reset")
        wait_for(first.died, "the first agent kills itself", 60)
        wait_for(lambda: stage.bmc(machine.node_id)["task"]["outcome"] is not None, "the task ends", 120)
        task = stage.bmc(machine.node_id)["task"]
        assert (task["kind"], task["outcome"], task["failure"]) == ("reset_bmc", "completed", None)
        assert machine.service.machine.restarts == 2, "the next holder resets it once more"


@pytest.mark.full
@pytest.mark.parametrize("point", POWER)
def test_a_standby_switches_a_machine_off_and_on_that_a_killed_agent_began_to(
    stage: Stage, site: Site, point: CrashPoint
) -> None:
    first = site.agent("first", crash_at=f"{point}:1")
    site.wait_for_holder("first")
    site.agent("second")
    options = Options(reset_types=("On", "ForceOff"))  # no graceful shutdown, so that every point is reached
    with stage.machine(options) as machine:
        machine.service.machine.power = "On"
        site.put_bmc(machine)
        stage.fleet.connection.execute("update nodes set state = 'cordoned' where id = %s", (machine.node_id,))
        verb = "off" if point is CrashPoint.POWER_BEFORE_FORCED else "reset"
        stage.admin.make(f"/admin/nodes/{machine.node_id}/bmc/power", {"verb": verb})
        wait_for(first.died, "the first agent kills itself", 90)
        wait_for(lambda: stage.bmc(machine.node_id)["task"]["outcome"] is not None, "the task ends", 120)
        task, wanted = stage.bmc(machine.node_id)["task"], "Off" if verb == "off" else "On"
        assert (task["outcome"], task["power_state"], machine.service.machine.power) == ("completed", wanted, wanted)


# In `make test` test_boots.py ends an agent before each request of it.
@pytest.mark.full
@pytest.mark.parametrize("point", EJECT)
def test_a_standby_ejects_the_medium_of_a_running_machine_that_a_killed_agent_began_to(
    stage: Stage, site: Site, point: CrashPoint
) -> None:
    first = site.agent("first", crash_at=f"{point}:1")
    site.wait_for_holder("first")
    site.agent("second")
    with stage.machine() as machine:
        found = machine.service.machine
        found.power, found.image, found.override = (
            "On",
            "http://192.0.2.1/deploy.iso",
            {"enabled": "Once", "target": "Cd"},
        )
        site.put_bmc(machine)
        stage.fleet.connection.execute(
            "insert into bmc_tasks (node_id, site_id, kind, requested_by, waits_for, waits_since, waits_until)"
            " select node_id, site_id, 'eject', 'test', 'lease', clock_timestamp(), clock_timestamp() + interval '10 min'"
            " from node_bmcs where node_id = %s",
            (machine.node_id,),
        )
        wait_for(first.died, "the first agent kills itself", 90)
        wait_for(lambda: stage.bmc(machine.node_id)["task"]["outcome"] is not None, "the task ends", 120)
        assert stage.bmc(machine.node_id)["task"]["outcome"] == "completed"
        assert (found.power, found.image or "", found.effects.count("On")) == ("On", "", 0)
        assert found.override["enabled"] == "Disabled" or found.override["target"] != "Cd"


@pytest.mark.full
def test_a_killed_holder_is_replaced_and_cannot_come_back(stage: Stage, site: Site) -> None:
    first = site.agent("first")
    site.wait_for_holder("first")
    site.agent("second")
    fence = site.read()["lease"]["fence"]
    assert first.child.process is not None
    os.kill(first.child.process.pid, signal.SIGSTOP)
    try:
        site.wait_for_holder("second")
        assert site.read()["lease"]["fence"] == fence + 1
    finally:
        os.kill(first.child.process.pid, signal.SIGCONT)
    wait_for(
        lambda: first.says("lease_lost") or first.says('"held"') or site.holder() == "second", "it learns of it", 30
    )
    with stage.machine() as machine:
        site.put_bmc(machine)
        assert stage.done(machine.node_id, "look")["task"]["outcome"] == "completed"
    assert not first.says("bmc_task_ended"), "the deposed agent has done nothing"
    assert site.holder() == "second"


@pytest.mark.full
def test_an_orderly_stop_gives_the_lease_up(stage: Stage, site: Site) -> None:
    first = site.agent("first")
    site.wait_for_holder("first")
    assert first.stop() == 0
    assert site.holder() is None
