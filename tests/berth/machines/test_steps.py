"""The demo on machines succeeds only if every step of every machine was proven; its table and sentences name what was not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import typer

from berth.cli.proof.machine_demo import conclude, verdict
from berth.cli.session import Output, Session
from berth.local.demo.machines.play import write_machine_report
from berth.local.demo.machines.steps import MachineGivenUp, NotProven, ProvenSteps, StepName
from berth.local.state import StateDirectory

MACHINES = ("machine-1", "machine-2")


def played(*, without: tuple[str, StepName] | None = None, broken: tuple[str, StepName] | None = None) -> ProvenSteps:
    """Every step of both machines proven, but for one that did not run or was not proven."""
    made = ProvenSteps(MACHINES, lambda _: None)
    for machine, name in itertools.product(MACHINES, StepName):
        if (machine, name) == broken:
            with pytest.raises(MachineGivenUp), made.step(machine, name):
                raise NotProven("17 bytes of the raw disk are not zero")
        elif (machine, name) != without:
            with made.step(machine, name) as step:
                step.found = "as it should be"
    made.check("P1: no overlap", True)
    return made


def test_all_steps_of_all_machines_are_the_proof() -> None:
    complete = played()
    assert complete.held
    assert complete.failures() == []
    assert (
        verdict(complete.report(1.0)) == "proven on 2 machines: nothing of the first tenant was left for the next one"
    )


@pytest.mark.parametrize("name", StepName)
def test_one_step_that_did_not_run_is_no_proof(name: StepName) -> None:
    lacking = played(without=("machine-2", name))
    assert not lacking.held
    assert lacking.failures() == [f"machine-2: 1 of {len(StepName)} steps did not run, the first: {name.value}"]


@pytest.mark.parametrize("name", StepName)
def test_one_step_that_was_not_proven_is_no_proof(name: StepName) -> None:
    failed = played(broken=("machine-1", name))
    assert not failed.held
    assert failed.failures() == [f"machine-1: not proven: {name.value}: 17 bytes of the raw disk are not zero"]


def test_a_step_that_failed_once_is_not_proven_by_a_second_run() -> None:
    failed = played(broken=("machine-1", StepName.GONE))
    with failed.step("machine-1", StepName.GONE):
        pass
    assert not failed.held


def test_nothing_and_no_check_of_the_promises_is_no_proof() -> None:
    assert not ProvenSteps((), lambda _: None).held
    unchecked = played()
    unchecked.together.clear()
    assert not unchecked.held
    assert unchecked.failures() == ["the promises were not checked"]
    violated = played()
    violated.check("P6: cleanup is proven", False)
    assert not violated.held
    assert violated.failures() == ["did not hold: P6: cleanup is proven"]


def test_a_defect_is_recorded_and_not_taken_for_an_answer() -> None:
    made = ProvenSteps(MACHINES, lambda _: None)
    with pytest.raises(AssertionError), made.step("machine-1", StepName.BMC):
        raise AssertionError("a defect")
    found = made.of("machine-1", StepName.BMC)
    assert found is not None
    assert found.why is not None


def test_the_table_shows_seconds_what_failed_and_what_did_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    failed = played(broken=("machine-1", StepName.GONE), without=("machine-2", StepName.CLEAN))
    failed.recorded[0].seconds = 12.34
    report = write_machine_report(StateDirectory(tmp_path), failed, 99.0)
    with pytest.raises(typer.Exit) as ended:
        conclude(Session(Output.TEXT, tmp_path), tmp_path, report)
    assert ended.value.exit_code == 1
    shown = capsys.readouterr()
    rows = {line.split("│")[1].strip(): line for line in shown.out.splitlines() if "│" in line}
    assert "12.3" in rows[StepName.BMC.value]
    assert "NO 0.0" in rows[StepName.GONE.value]
    assert rows[StepName.CLEAN.value].split("│")[3].strip() == "-"
    assert shown.out.rstrip().splitlines()[-1] == "NOT proven: 2 findings, listed above"
    assert (
        "machine-1: not proven: raw disk: marker and all else gone: 17 bytes of the raw disk are not zero" in shown.err
    )


def test_a_proof_ends_with_its_sentence_and_without_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    conclude(Session(Output.TEXT, tmp_path), tmp_path, write_machine_report(StateDirectory(tmp_path), played(), 99.0))
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.rstrip().splitlines()[-1].startswith("proven on 2 machines")
