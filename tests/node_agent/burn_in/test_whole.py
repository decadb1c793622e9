"""A whole burn-in: parts in processes, DCGM, plugins; what fails, hangs or is left out is stated, and nothing runs on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node_agent.burn_in.bounds import Bounds
from node_agent.burn_in.burn_in import MARGIN_SECONDS, BurnIn
from node_agent.burn_in.dcgm import gpu_ids, judge, run_dcgm
from node_agent.discovery.reading import Gaps
from node_agent.wire.burn_in import BurnInParameters, BurnInPart, BurnInReport
from tests.discovery.probes.programs import gaps_of, left_behind, write_program

MIB = 2**20
ADDRESSES = ["0000:0f:00.0", "0000:10:00.0"]
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])}
LISTING = """2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:10:00.0                                         |
|        | Device UUID: GPU-1                                                   |
| 3      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:0F:00.0                                         |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""


def bounds(directory: Path, **changes: Any) -> Bounds:
    small = Bounds(directory, memory_bytes_max=16 * MIB, disk_bytes_max=2 * MIB, cpu_seconds=0.05)
    return replace(small, **changes)


def run(
    directory: Path,
    *,
    seconds: float = 60.0,
    gpus: list[str] | None = None,
    shared: bool = False,
    occupied: bool = False,
    driver: str = "sandbox",
    path: str = "",
    **changes: Any,
) -> BurnInReport:
    environment = {**ENVIRONMENT, "PATH": f"{path}:{ENVIRONMENT['PATH']}"}
    burn_in = BurnIn(driver, bounds(directory, **changes), environment, "tests.node_agent.burn_in.faulty")
    order = BurnInParameters(slots=[1], gpus=gpus or [], shared=shared)
    return asyncio.run(burn_in.run(order, seconds + MARGIN_SECONDS, occupied=occupied))


def verdicts(report: BurnInReport) -> dict[str, str]:
    return {part.name: part.verdict for part in report.parts}


def part(report: BurnInReport, name: str) -> BurnInPart:
    return next(part for part in report.parts if part.name == name)


def dcgmi(directory: Path, answer: str, code: int = 0) -> str:
    """A `dcgmi` that lists two GPUs and gives this answer; the folder in which it is found."""
    text = f"""
import pathlib, sys
if sys.argv[1] == "discovery":
    sys.stdout.write({LISTING!r})
else:
    pathlib.Path({str(directory / "asked")!r}).write_text(" ".join(sys.argv[1:]))
    sys.stdout.write({answer!r})
    sys.exit({code})
"""
    return str(write_program(directory / "dcgmi", text).parent)


def results(*statuses: str, root: str = "DCGM GPU Diagnostic", **more: Any) -> str:
    tests = [{"name": f"test {i}", "results": [{"gpu_id": "3", "status": s, **more}]} for i, s in enumerate(statuses)]
    return json.dumps({root: {"version": "3.3", "test_categories": [{"category": "Hardware", "tests": tests}]}})


def test_a_sound_node_is_healthy_and_states_what_was_left_out(tmp_path: Path) -> None:
    report = run(tmp_path)
    assert verdicts(report) == {"memory": "healthy", "disk": "healthy", "cpu": "healthy"}
    assert gaps_of(report) == {"dcgm": "is not installed"}
    assert (report.shared, report.plugins) == (False, None)
    assert all(one.seconds > 0 for one in report.parts)
    assert BurnInReport.model_validate_json(report.canonical()) == report
    assert list(tmp_path.iterdir()) == []
    assert left_behind("burn_in") == []


@pytest.mark.quick("disk corrupts-disk-fault-is not what was written")
@pytest.mark.parametrize(
    ("fault", "name", "verdict", "evidence"),
    [
        ("memory flips", "memory", "fault", "pattern 0x00"),
        ("disk corrupts", "disk", "fault", "is not what was written"),
        ("cpu errs", "cpu", "fault", "computed another result"),
        ("memory gets SIGBUS", "memory", "fault", "ended by signal 7"),
        ("memory gets SIGKILL", "memory", "unknown", "ended by signal 9"),
        ("disk gets SIGSEGV", "disk", "unknown", "ended by signal 11"),
        ("cpu gets SIGILL", "cpu", "fault", "ended by signal 4"),
    ],
)
def test_a_seeded_fault_is_found_and_the_other_parts_are_tested(
    tmp_path: Path, fault: str, name: str, verdict: str, evidence: str
) -> None:
    (tmp_path / "fault").write_text(fault)
    report = run(tmp_path)
    assert verdicts(report) == {"memory": "healthy", "disk": "healthy", "cpu": "healthy", name: verdict}
    assert evidence in part(report, name).evidence


@pytest.mark.full
def test_a_part_that_hangs_ends_with_the_task(tmp_path: Path) -> None:
    (tmp_path / "fault").write_text("disk hangs")
    began = time.monotonic()
    report = run(tmp_path, seconds=3.0)
    assert time.monotonic() - began < 20
    assert verdicts(report) == {"memory": "healthy", "disk": "unknown", "cpu": "unknown"}
    assert left_behind("burn_in") == []


@pytest.mark.quick("True-False")
@pytest.mark.parametrize(("shared", "occupied"), [(True, False), (False, True), (False, False)])
def test_beside_tenants_the_bounds_are_smaller_and_the_report_states_it(
    tmp_path: Path, shared: bool, occupied: bool
) -> None:
    found = dcgmi(tmp_path / "bin", results("Pass"))
    report = run(tmp_path, shared=shared, occupied=occupied, path=found)
    assert report.shared == (shared or occupied)
    assert gaps_of(report).get("bounds") == (
        "other slots are occupied: the smaller bounds were used" if report.shared else None
    )
    assert gaps_of(report)["dcgm"] == "left out: the GPUs of the slots under test are not known"
    assert not (tmp_path / "bin/asked").exists(), "no GPU of a tenant is touched"


def test_dcgm_runs_on_the_gpus_under_test_alone(tmp_path: Path) -> None:
    found = dcgmi(tmp_path / "bin", results("Pass", "Skip"))
    report = run(tmp_path, gpus=[ADDRESSES[0]], occupied=True, path=found, dcgm_level=3)
    assert (part(report, "dcgm").verdict, part(report, "dcgm").evidence) == ("healthy", "1 of 2 results passed")
    assert (tmp_path / "bin/asked").read_text() == "diag --run 3 --json --gpuList 3"
    assert gpu_ids(LISTING) == {"0000:0f:00.0": 3, "0000:10:00.0": 0}


@pytest.mark.timeout(20)
def test_the_list_of_gpus_ends_with_the_burn_in_too(tmp_path: Path) -> None:
    hangs = str(write_program(tmp_path / "bin/dcgmi", "import signal\nsignal.pause()\n").parent)
    environment = {**ENVIRONMENT, "PATH": f"{hangs}:{ENVIRONMENT['PATH']}"}
    found = asyncio.run(run_dcgm(2, ADDRESSES, environment, time.monotonic() + 0.2, Gaps()))
    assert found is not None
    assert found.verdict == "unknown"


def test_every_part_runs_at_the_lowest_priority(tmp_path: Path) -> None:
    (tmp_path / "fault").write_text("no fault, priorities")
    assert verdicts(run(tmp_path)) == {"memory": "healthy", "disk": "healthy", "cpu": "healthy"}
    assert {file.name: file.read_text() for file in tmp_path.glob("priority-*")} == {
        f"priority-{name}": "19" for name in ("memory", "disk", "cpu")
    }


@pytest.mark.full
def test_a_gpu_that_dcgm_does_not_know_is_no_pass(tmp_path: Path) -> None:
    found = dcgmi(tmp_path / "bin", results("Pass"))
    report = run(tmp_path, gpus=[*ADDRESSES, "0000:ff:00.0"], path=found)
    assert part(report, "dcgm").verdict == "unknown"
    assert part(report, "dcgm").evidence == "DCGM does not know 1 of the GPUs: 0000:ff:00.0"


@pytest.mark.full
def test_dcgm_can_be_switched_off(tmp_path: Path) -> None:
    report = run(tmp_path, path=dcgmi(tmp_path / "bin", results("Fail")), dcgm_level=0)
    assert "dcgm" not in verdicts(report)
    assert gaps_of(report)["dcgm"] == "is switched off by BERTH_AGENT_BURN_IN_DCGM_LEVEL"


@pytest.mark.parametrize(
    ("output", "verdict", "evidence", "gap"),
    [
        (results("Pass", "PASS"), "healthy", "2 of 2 results passed", None),
        (results("Pass", root="DCGM Diagnostic"), "healthy", "1 of 1 results passed", None),
        ("Warning: old driver\n" + results("Pass"), "healthy", "1 of 1 results passed", None),
        (results("Pass", "Fail", warnings=["ECC"]), "fault", "test 1 of GPU 3: ECC", None),
        (results("Fail", warnings=[{"warning": "DBE", "error_id": 1}]), "fault", "test 0 of GPU 3: DBE", None),
        (results("Pass", "Warn", warnings="hot"), "healthy", "1 of 2 results passed", "test 1 of GPU 3: hot"),
        (results("Skip", "Skipped"), None, None, "every test was skipped: it does not support these GPUs"),
        (results("Skip", "Warn"), "unknown", "no test of dcgmi passed", "test 1 of GPU 3: warn"),
        (json.dumps({"runtime_error": "no host engine"}), "unknown", "no host engine", None),
        ("Error: unable to connect", "unknown", "the answer of dcgmi is no JSON", None),
        ("[" * 100_000 + "{" + "}", "unknown", "no test of dcgmi passed", None),
        ('{"a": [{"test_categories": 3}], "test_categories": [{"tests": [{"results": ["x"]}]}]}', "unknown",
         "no test of dcgmi passed", None),
    ],
)  # fmt: skip
def test_what_dcgm_answers(output: str, verdict: str | None, evidence: str | None, gap: str | None) -> None:
    gaps = Gaps()
    found = judge(output.encode(), gaps)
    assert (found and found.verdict, found and found.evidence) == (verdict, evidence)
    assert [one.reason for one in gaps.all()] == ([gap] if gap else [])


@pytest.mark.full
def test_plugins_know_what_is_under_test_and_end_with_the_burn_in(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    said = 'import json, os\nprint(json.dumps({"verdict": "fault", "evidence": " ".join(f"{k}={os.environ[k]}" for k in'
    write_program(plugins / "fans", said + ' ("BURN_IN_SLOTS", "BURN_IN_GPUS", "BURN_IN_SHARED"))}))\n')
    write_program(plugins / "hangs", "import signal\nsignal.pause()\n")
    report = run(tmp_path, gpus=ADDRESSES, plugins=plugins, plugin_seconds=1.0)
    first, second = report.plugins or []
    assert (first.name, first.verdict) == ("fans", "fault")
    assert first.evidence == f"BURN_IN_SLOTS=1 BURN_IN_GPUS={','.join(ADDRESSES)} BURN_IN_SHARED=0"
    assert (second.name, second.verdict, second.failure) == ("hangs", "unknown", "no answer within 1 s")
    assert left_behind("burn_in") == []


def test_a_driver_without_hardware_tests_nothing(tmp_path: Path) -> None:
    report = run(tmp_path, driver="noop")
    assert (report.parts, gaps_of(report)) == ([], {"hardware": "the driver noop has none"})


def test_a_tethered_process_ends_at_once_if_its_parent_is_gone(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    command = [sys.executable, "-m", "node_agent.burn_in.tether", "1", "/usr/bin/touch", str(marker)]
    assert os.spawnv(os.P_WAIT, command[0], command) == 1
    assert not marker.exists()
