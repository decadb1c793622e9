"""The checks on machines on played evidence: each finds its violation alone, and nothing in a life that went well."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.campaign.history import History, Sight
from tests.campaign.machines.judging_machines import judge_machines
from tests.campaign.machines.records import Certified, Quarantined, RunSight

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
RUN = RunSight(uuid.UUID(int=3), "machine-1", "wipe", "end", FIRST, "completed", None)


def line(at: float, what: str, **details: Any) -> dict[str, Any]:
    return {"at": at, "what": what, **details}


def work(at: float, kind: str, epoch: int, owner: uuid.UUID | None = None, *markers: uuid.UUID) -> dict[str, Any]:
    found = line(at, "work_done", kind=kind, boot=epoch, epoch=epoch, allocation=str(owner))
    return found | ({"markers": [str(one) for one in markers]} if kind == "deploy" else {})


def tenant(at: float, boot: int, owner: uuid.UUID, *markers: uuid.UUID) -> dict[str, Any]:
    return line(at, "tenant", boot=boot, allocation=str(owner), markers=[str(one) for one in markers])


def power(at: float, state: str, boot: int) -> dict[str, Any]:
    return line(at, "power", state=state, boot=boot)


def command(at: float, lease: int, task: int) -> dict[str, Any]:
    return line(at, "command", line="POST /reset", status=204, attempt=f"{lease} {task} metal.power_on {at}")


def sight(owner: uuid.UUID, at: float, state: str) -> Sight:
    return Sight("c", owner, at, at, state)


def well() -> History:
    """Two tenants after each other."""
    history = History(seed=0)
    history.machines.seen["machine-1"] = [
        command(1.0, 1, 1), work(2.0, "deploy", 1, FIRST), tenant(3.0, 2, FIRST), power(3.1, "On", 2), power(5.0, "Off", 2),
        work(6.0, "wipe", 2, FIRST), command(7.0, 2, 2), work(8.0, "deploy", 3, SECOND), tenant(9.0, 4, SECOND),
        power(10.0, "Off", 4),
    ]  # fmt: skip
    history.sights += [sight(FIRST, 4.0, "active"), sight(FIRST, 7.0, "released")]
    history.settled[FIRST] = sight(FIRST, 7.0, "released")
    history.machines.certificates[FIRST] = Certified(FIRST, history.moment(6.0))
    history.machines.runs[RUN.id] = RUN
    disabled = {"enabled": "Disabled", "target": "None"}
    history.machines.left["machine-1"] = {"power": "Off", "image": None, "override": disabled}
    return history


def found_in(history: History) -> set[str]:
    return {violation.check for violation in judge_machines(history)}


def test_nothing_is_found_where_all_went_well() -> None:
    assert judge_machines(well()) == []


def test_a_marker_of_another_tenant_is_found() -> None:
    history = well()
    history.machines.seen["machine-1"][8] = tenant(9.0, 4, SECOND, FIRST)
    assert found_in(history) == {"empty disk"}


def test_a_deployment_over_a_disk_that_was_not_wiped_is_found() -> None:
    history = well()
    del history.machines.seen["machine-1"][5]
    assert found_in(history) == {"wiped before the next"}


def test_a_missing_a_late_and_an_unproven_certificate_are_found() -> None:
    history = well()
    certified = history.machines.certificates.pop(FIRST)
    assert found_in(history) == {"certificate"}
    late = replace(certified, ended_at=history.moment(8.0) + timedelta(seconds=1))
    history.machines.certificates[FIRST] = late
    assert found_in(history) == {"certificate"}
    history.machines.certificates[FIRST] = replace(certified, ended_at=None, problem="the signature is wrong")
    assert found_in(history) == {"certificate"}


def test_a_system_that_runs_on_or_starts_after_the_release_is_found() -> None:
    history = well()
    history.machines.seen["machine-1"][4] = power(7.5, "Off", 2)
    assert found_in(history) == {"off when released"}
    history = well()
    history.machines.seen["machine-1"].append(tenant(11.0, 5, FIRST, FIRST))
    assert "off when released" in found_in(history)


def test_a_command_of_an_older_lease_and_of_an_older_task_are_found() -> None:
    for lease, task in ((1, 3), (2, 1)):
        history = well()
        history.machines.seen["machine-1"].append(command(12.0, lease, task))
        assert found_in(history) == {"no fenced command"}


def test_a_command_that_was_sent_before_is_none_although_the_bmc_served_it_later() -> None:
    history = well()
    history.machines.seen["machine-1"].append(command(1.5, 1, 1) | {"at": 12.0})
    assert judge_machines(history) == []


def test_work_of_an_older_epoch_is_found() -> None:
    history = well()
    history.machines.seen["machine-1"].append(line(12.0, "work_begun", kind="wipe", epoch=2))
    assert found_in(history) == {"no fenced deploy system"}


def test_runs_that_do_not_end_are_late_or_end_without_a_reason_are_found() -> None:
    for change, check in (
        ({"outcome": None}, "run ends"), ({"outcome": "failed"}, "run ends"), ({"late_seconds": 31.0}, "run in time"),
    ):  # fmt: skip
        history = well()
        history.machines.runs[RUN.id] = replace(RUN, **change)
        assert found_in(history) == {check}
    history = well()
    history.machines.open_tasks.append("machine-1: look")
    assert found_in(history) == {"run ends"}


def test_a_quarantine_without_evidence_is_found() -> None:
    history = well()
    history.machines.quarantines.append(Quarantined("machine-1", "firmware", None, "release"))
    assert found_in(history) == {"quarantine with evidence"}


def test_a_machine_that_is_left_on_with_a_medium_or_its_boot_is_found() -> None:
    for change in (
        {"power": "On"}, {"image": "http://192.0.2.1/d.iso"}, {"override": {"enabled": "Once", "target": "Cd"}},
    ):  # fmt: skip
        history = well()
        history.machines.left["machine-1"] |= change
        assert found_in(history) == {"left off"}


def test_an_unknown_password_is_found() -> None:
    history = well()
    history.machines.strange_passwords.append("machine-1: none")
    assert found_in(history) == {"password known"}
