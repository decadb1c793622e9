"""A probe reads memory, disks, ports and GPUs; what hangs, crashes or cannot be read is absent, and never a fault."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from node_agent.discovery.children import NoAnswer
from node_agent.probes.plugins import require_safe
from node_agent.probes.probe import Prober, fit
from node_agent.protocol import RESULT_BYTES_MAX
from node_agent.wire.fields import INTEGER_MAX
from node_agent.wire.health import (
    EVIDENCE_MAX,
    PLUGINS_MAX,
    REPORT_BYTES_MAX,
    GpuHealth,
    HealthReport,
    Xid,
)
from node_agent.wire.topology import DISKS_MAX, GPUS_MAX, NICS_MAX
from tests.discovery.fake_nvml import FakeNvml
from tests.discovery.probes.programs import (
    EDAC,
    add_health,
    gaps_of,
    left_behind,
    log_xid,
    passed,
    probe,
    smartctl,
    write_program,
)
from tests.discovery.trees import GPU_ADDRESSES, RecordedTree

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def test_a_healthy_machine(tree: RecordedTree, nvml: FakeNvml) -> None:
    add_health(tree)
    report = probe(tree, nvml.environment)
    assert [(m.name, m.corrected, m.uncorrected) for m in report.memory or ()] == [("mc0", 0, 0), ("mc1", 1, 0)]
    assert [(d.name, d.source, d.passed, d.state, d.temperature_celsius) for d in report.disks or ()] == [
        ("nvme0n1", "sysfs", None, "live", 35), ("nvme1n1", "sysfs", None, "live", 35),
    ]  # fmt: skip
    assert [(n.name, n.carrier, n.carrier_losses, n.receive_errors, n.transmit_errors) for n in report.nics or ()] == [
        ("ens0np0", True, 0, 7, 0), ("ens1np0", True, 1, 7, 0),
    ]  # fmt: skip
    gpus = report.gpus or []
    assert [gpu.address for gpu in gpus] == GPU_ADDRESSES
    assert gpus[0] == GpuHealth(
        address=GPU_ADDRESSES[0], ecc_corrected=0, ecc_uncorrected=0, ecc_uncorrected_lifetime=0, remapped_corrected=0,
        remapped_uncorrected=0, remap_pending=False, remap_failed=False, temperature_celsius=38, slowdown_celsius=87,
        throttle_reasons=["idle"], nvlinks=18, nvlinks_up=18, xids=[],
    )  # fmt: skip
    assert (report.nvml_driver, report.plugins, report.gaps) == ("580.95.05", None, [])


def test_faults_of_gpus(tree: RecordedTree, nvml: FakeNvml) -> None:
    add_health(tree)
    nvml.answer(
        gpu1__ecc_uncorrected_volatile=3, gpu1__ecc_uncorrected_lifetime=9, gpu2__remapped=4, gpu2__remap_pending=1,
        gpu2__remap_failed=1, gpu3__celsius=90, gpu3__throttle=0x40 | 0x80 | 0x8, gpu4__link5=0, gpu4__link2_errors0=2,
        gpu4__link3_errors2=5,
    )  # fmt: skip
    gpus = probe(tree, nvml.environment).gpus or []
    assert (gpus[1].ecc_uncorrected, gpus[1].ecc_uncorrected_lifetime) == (3, 9)
    assert (gpus[2].remapped_uncorrected, gpus[2].remap_pending, gpus[2].remap_failed) == (4, True, True)
    assert gpus[3].temperature_celsius == 90
    assert gpus[3].throttle_reasons == ["hardware_slowdown", "hardware_thermal", "power_brake"]
    assert (gpus[4].nvlinks, gpus[4].nvlinks_up, gpus[4].nvlink_errors) == (18, 17, 7)


def test_xids_of_the_kernels_log(tree: RecordedTree, nvml: FakeNvml) -> None:
    add_health(tree)
    forged = log_xid(3, 79, priority=12)
    tree.write(
        "dev/kmsg", "6,1,1,-;boot\n" + log_xid(2, 31) + log_xid(2, 79) * 3 + forged + log_xid(2, 99999) + " X=y\n"
    )
    gpus = probe(tree, nvml.environment).gpus or []
    assert gpus[2].xids == [Xid(code=79, count=3), Xid(code=31, count=1)]
    assert gpus[3].xids == [], "a process wrote that line"


def test_without_the_kernels_log_xids_are_unknown(tree: RecordedTree, nvml: FakeNvml) -> None:
    report = probe(tree, nvml.environment)
    assert {str(gpu.xids) for gpu in report.gpus or ()} == {"None"}
    assert "kernel log" in gaps_of(report)
    assert report.memory is None, "there is no EDAC driver"


def test_a_port_that_is_off_has_no_carrier(tree: RecordedTree) -> None:
    add_health(tree)
    tree.write("sys/class/net/ens0np0/flags", "0x1002\n")
    tree.write("sys/class/net/ens1np0/carrier", "0\n")
    assert [nic.carrier for nic in probe(tree, ENVIRONMENT).nics or ()] == [None, False]


def test_strange_counters_are_gaps(tree: RecordedTree) -> None:
    add_health(tree)
    tree.write(f"{EDAC}/mc0/ue_count", "many\n")
    tree.write(f"{EDAC}/mc1/ue_count", "9" * 30)
    tree.write(f"{EDAC}/mc1/ce_count", "-1\n")
    report = probe(tree, ENVIRONMENT)
    assert [(m.corrected, m.uncorrected) for m in report.memory or ()] == [(0, None), (None, None)]
    assert {subject for subject in gaps_of(report) if "edac" in subject} == {
        f"{EDAC}/mc{number}/ue_count" for number in range(2)
    }


def test_smart_by_smartctl(tree: RecordedTree, tmp_path: Path) -> None:
    add_health(tree)
    failing = {
        "smart_status": {"passed": False}, "ata_smart_attributes": {"table": [
            {"id": 5, "raw": {"value": 12}}, {"id": 197, "raw": {"value": 4}}, {"id": 9, "raw": {"value": 1}}]},
    }  # fmt: skip
    answers = {"/dev/nvme0n1": passed(media_errors=2), "/dev/nvme1n1": failing}
    disks = probe(tree, smartctl(tmp_path / "bin", answers, code=8)).disks or []
    assert [(d.source, d.passed, d.media_errors, d.percentage_used, d.temperature_celsius) for d in disks] == [
        ("smartctl", True, 2, 3, 41), ("smartctl", False, None, None, 35),
    ]  # fmt: skip
    assert (disks[1].reallocated_sectors, disks[1].pending_sectors, disks[1].state) == (12, 4, "live")


def test_a_smartctl_without_a_verdict_is_a_gap(tree: RecordedTree, tmp_path: Path) -> None:
    refused = {"smartctl": {"messages": [{"string": "open device: Permission denied"}]}}
    strange = {"smart_status": {"passed": True}, "temperature": {"current": "hot"}}
    report = probe(tree, smartctl(tmp_path / "bin", {"/dev/nvme0n1": refused, "/dev/nvme1n1": strange}, code=2))
    assert [disk.passed for disk in report.disks or ()] == [None, None]
    gaps = gaps_of(report)
    assert gaps["smart nvme0n1"] == "open device: Permission denied"
    assert gaps["smart nvme1n1"] == "the answer of smartctl is not what it documents"


def test_a_hung_call_of_nvml_costs_only_its_part(tree: RecordedTree, nvml: FakeNvml) -> None:
    add_health(tree)
    nvml.answer(gpu2__hang=1)
    began = time.monotonic()
    report = probe(tree, nvml.environment, nvml_seconds=1.0)
    assert time.monotonic() - began < 15.0
    assert gaps_of(report)["nvml"] == "no answer within 1 s"
    assert [gpu.address for gpu in report.gpus or ()] == GPU_ADDRESSES
    assert {gpu.ecc_uncorrected for gpu in report.gpus or ()} == {None}
    assert left_behind("node_agent.probes") == []


def test_a_library_that_crashes_or_is_not_there(tree: RecordedTree, nvml: FakeNvml) -> None:
    add_health(tree)
    nvml.answer(gpu0__crash=1)
    assert gaps_of(probe(tree, nvml.environment))["nvml"] == "the process was ended by signal 11"
    assert "nvml" in gaps_of(probe(tree, ENVIRONMENT))


def test_a_lost_gpu_is_unknown(tree: RecordedTree, nvml: FakeNvml) -> None:
    add_health(tree)
    nvml.answer(gpu5__error=15)
    report = probe(tree, nvml.environment)
    assert "nvml gpu 5" in gaps_of(report)
    assert (report.gpus or [])[5] == GpuHealth(address=GPU_ADDRESSES[5], xids=[])


def test_an_empty_machine_and_a_driver_without_hardware(tmp_path: Path) -> None:
    report = asyncio.run(Prober("sandbox", root=tmp_path, environment=ENVIRONMENT).probe())
    assert report.model_dump(exclude={"gaps"}, exclude_none=True) == {"driver": "sandbox"}
    assert asyncio.run(Prober("noop").probe()) == HealthReport(driver="noop")


PROGRAMS = {
    "crashes": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "the process was ended by signal 11"),
    "fails": ('print(\'{"verdict": "fault"}\')\nraise SystemExit(3)', "the process exited with 3"),
    "floods": ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "the answer is larger than 65536 bytes"),
    "rubbish": ("print('all is well')", "output: Invalid JSON"),
    "silent": ("", "output: Invalid JSON"),
    "list": ("print('[]')", "output: Input should be an object"),
    "unknown-field": ('print(\'{"verdict": "healthy", "slots": [0]}\')', "slots: Extra inputs are not permitted"),
    "no-verdict": ("print('{}')", "verdict: Field required"),
    "other-verdict": ('print(\'{"verdict": "great"}\')', "verdict: Input should be"),
}


def test_plugins_that_do_not_answer_are_unknown(tree: RecordedTree, tmp_path: Path) -> None:
    directory = tmp_path / "plugins"
    for name, (text, _) in PROGRAMS.items():
        write_program(directory / name, text)
    results = {result.name: result for result in probe(tree, ENVIRONMENT, plugins=directory).plugins or ()}
    assert {name: result.verdict for name, result in results.items()} == dict.fromkeys(PROGRAMS, "unknown")
    for name, (_, failure) in PROGRAMS.items():
        assert (results[name].failure or "").startswith(failure), name


@pytest.mark.full
def test_a_plugin_that_hangs_ends_with_its_children(tree: RecordedTree, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"""import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
os._exit(0)
"""
    write_program(tmp_path / "plugins/hangs", text)
    results = probe(tree, ENVIRONMENT, plugins=tmp_path / "plugins", plugin_seconds=3.0).plugins or []
    assert [(result.verdict, result.failure) for result in results] == [("unknown", "no answer within 3 s")]
    ended = [pid for pid in map(int, pids.read_text().split()) if not _runs(pid)]
    assert len(ended) == 2, "the child held the output open"


def _runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        with suppress(psutil.TimeoutExpired):
            process.wait(5.0)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_plugins_say_what_is_healthy_and_what_is_not(tree: RecordedTree, tmp_path: Path) -> None:
    directory = tmp_path / "plugins"
    said = json.dumps({"verdict": "fault", "evidence": "fan\n3 \x1b[31mstopped " + "x" * 5000, "gpu": GPU_ADDRESSES[1]})
    write_program(directory / "b-fans", f"print({said!r})")
    write_program(directory / "a-power", 'import os\nprint(\'{"verdict": "healthy"}\')')
    write_program(directory / "c-mine", 'print(\'{"verdict": "healthy"}\')', mode=0o757)
    write_program(directory / "d-text", "", mode=0o644)
    (directory / "README.txt.").write_text("not lower case, not run")
    (directory / "e-folder").mkdir()
    results = probe(tree, ENVIRONMENT, plugins=directory).plugins or []
    assert [(result.name, result.verdict) for result in results] == [
        ("a-power", "healthy"), ("b-fans", "fault"), ("c-mine", "unknown"), ("d-text", "unknown"), ("e-folder", "unknown"),
    ]  # fmt: skip
    assert (results[1].address, len(results[1].evidence)) == (GPU_ADDRESSES[1], EVIDENCE_MAX)
    assert results[1].evidence.startswith("fan 3 ?[31mstopped x")
    assert results[2].failure == "is not run: other users may write to it"
    assert results[3].failure == "no process can be started: Permission denied"


@pytest.mark.parametrize(
    ("file", "folder", "what"),
    [(0o775, 0o755, "it"), (0o757, 0o755, "it"), (0o755, 0o775, "its folder"), (0o755, 0o757, "its folder")],
)
def test_a_plugin_that_another_user_may_replace_is_not_run(tmp_path: Path, file: int, folder: int, what: str) -> None:
    path = tmp_path / "plugins" / "fans"
    write_program(path, "", mode=file)
    path.parent.chmod(folder)
    with pytest.raises(NoAnswer, match=f"other users may write to {what}$"):
        require_safe(path)


def test_plugins_do_not_see_the_agents_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ENROLMENT_TOKEN", "secret-of-this-node")
    text = "import json, os\nprint(json.dumps({'verdict': 'healthy', 'evidence': ' '.join(sorted(os.environ))}))"
    write_program(tmp_path / "plugins/env", text)
    prober = Prober("libvirt", plugins=tmp_path / "plugins", root=tmp_path)
    evidence = [result.evidence for result in asyncio.run(prober.probe()).plugins or ()]
    assert "PATH" in evidence[0].split()
    assert "BERTH_" not in evidence[0]


@pytest.mark.full
def test_more_plugins_than_may_run(tree: RecordedTree, tmp_path: Path) -> None:
    for number in range(PLUGINS_MAX + 1):
        write_program(tmp_path / f"plugins/p{number:02}", 'print(\'{"verdict": "healthy"}\')')
    report = probe(tree, ENVIRONMENT, plugins=tmp_path / "plugins")
    assert len(report.plugins or ()) == PLUGINS_MAX
    assert gaps_of(report)["plugins"] == "17 were found, the first 16 are run"


def test_the_largest_report_fits_into_a_result() -> None:
    counters = [name for name in GpuHealth.model_fields if name.startswith(("ecc_", "remapped_", "nvlink_"))]
    gpu = dict.fromkeys(counters, INTEGER_MAX)
    xids = [Xid(code=9999, count=60_000)] * 8
    disk = {"media_errors": INTEGER_MAX, "reallocated_sectors": INTEGER_MAX, "pending_sectors": INTEGER_MAX}
    report = HealthReport.model_validate(
        {
            "driver": "libvirt",
            "gpus": [
                {"address": f"0000:{n:02x}:00.0", "xids": xids, "throttle_reasons": ["application_clocks"] * 9, **gpu}
                for n in range(GPUS_MAX)
            ],
            "disks": [{"name": f"d{n:031}", "source": "smartctl", "state": "s" * 32, **disk} for n in range(DISKS_MAX)],
            "nics": [{"name": f"n{n:031}", "receive_errors": INTEGER_MAX} for n in range(NICS_MAX)],
            "plugins": [
                {"name": f"p{n}", "verdict": "fault", "evidence": "x" * EVIDENCE_MAX} for n in range(PLUGINS_MAX)
            ],
        }
    )
    fitted = fit(report)
    assert len(fitted.canonical()) <= REPORT_BYTES_MAX < RESULT_BYTES_MAX
    assert fitted.gpus == report.gpus
    assert (fitted.nics, fitted.disks) == (None, None)
    assert fitted.plugins == report.plugins, "it fits without the others"
    assert gaps_of(fitted)["disks"] == "left out: the report is larger than 61440 bytes"


def test_a_report_that_contradicts_itself_is_refused() -> None:
    twice = [{"address": GPU_ADDRESSES[0], "ecc_uncorrected": count} for count in (0, 5)]
    with pytest.raises(ValidationError, match="names one subject twice"):
        HealthReport.model_validate({"driver": "libvirt", "gpus": twice})
