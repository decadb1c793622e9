"""GPUs are reset by the mechanism of the host, all or none, and proven by another look; everything else fails with its code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from node_agent.gpu_reset import functions
from node_agent.wire.gpu_reset import GpuResetReport
from tests.discovery.fake_nvml import FakeNvml
from tests.discovery.gpu_resets.machine import PYTHONPATH, Machine, outcomes
from tests.discovery.probes.programs import left_behind
from tests.discovery.trees import GPU_ADDRESSES
from tests.support.waiting import wait_for

SUCCEEDS = "print('GPU was successfully reset.')\n"


def only(report: GpuResetReport) -> tuple[str, str]:
    """Outcome and evidence of the only GPU."""
    (one,) = report.gpus
    return one.outcome, one.evidence


def test_a_passed_through_gpu_is_reset_by_its_function(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    report = machine.reset(2)
    assert [(one.address, one.outcome, one.method, one.evidence) for one in report.gpus] == [
        (GPU_ADDRESSES[2], "reset", "flr", "")
    ]
    assert machine.was_reset(2)
    assert GpuResetReport.model_validate_json(report.canonical()) == report
    assert left_behind("gpu_reset") == []


def test_gpus_of_the_driver_are_reset_together_and_proven_by_nvml(tmp_path: Path, nvml: FakeNvml) -> None:
    machine = Machine(tmp_path / "root")
    machine.with_nvml(nvml)
    machine.nvidia_smi(SUCCEEDS)
    report = machine.reset(0, 3)
    assert outcomes(report) == ["reset", "reset"]
    assert [(one.method, one.serial) for one in report.gpus] == [
        ("nvidia-smi", "1650000000000"), ("nvidia-smi", "1650000000003"),
    ]  # fmt: skip
    assert machine.asked == f"--gpu-reset -i {GPU_ADDRESSES[0]},{GPU_ADDRESSES[3]}"


def test_another_gpu_at_the_address_is_not_touched(tmp_path: Path, nvml: FakeNvml) -> None:
    machine = Machine(tmp_path / "root", 1)
    machine.with_nvml(nvml)
    machine.nvidia_smi(SUCCEEDS)
    report = machine.reset(0, 1, serials={GPU_ADDRESSES[0]: "9"})
    assert outcomes(report) == ["gpu_missing", "gpu_reset_left_out"]
    assert report.gpus[0].evidence == "another GPU is at this address: its serial number is 1650000000000, not 9"
    assert machine.asked is None
    assert not machine.was_reset(1)
    assert outcomes(machine.reset(0, 1, serials={GPU_ADDRESSES[0]: "1650000000000"})) == ["reset", "reset"]


@pytest.mark.full
def test_both_mechanisms_serve_one_order(tmp_path: Path, nvml: FakeNvml) -> None:
    machine = Machine(tmp_path / "root", 1)
    machine.with_nvml(nvml)
    machine.nvidia_smi(SUCCEEDS)
    assert [one.method for one in machine.reset(0, 1).gpus] == ["nvidia-smi", "flr"]
    assert machine.asked == f"--gpu-reset -i {GPU_ADDRESSES[0]}"
    assert machine.was_reset(1)


def test_a_kernel_that_names_no_method(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    (machine.root / machine.directory(2) / "reset_method").unlink()
    assert [(one.outcome, one.method) for one in machine.reset(2).gpus] == [("reset", "kernel")]


@pytest.mark.parametrize(
    ("fault", "outcome", "evidence"),
    [
        ("gone", "gpu_missing", "no device is at this address"),
        ("no file", "gpu_reset_unsupported", "the kernel knows no way to reset it"),
        ("no method", "gpu_reset_unsupported", "the kernel knows no way to reset it"),
        ("other driver", "gpu_reset_unsupported", "the driver nouveau holds it"),
        ("open group", "gpu_in_use", "1 processes have it open"),
        ("open device", "gpu_in_use", "1 processes have it open"),
    ],
)
def test_what_cannot_be_reset_is_named_and_no_gpu_is_touched(
    tmp_path: Path, fault: str, outcome: str, evidence: str
) -> None:
    machine = Machine(tmp_path, 2, 3)
    directory = machine.root / machine.directory(3)
    if fault == "gone":
        machine.tree.remove_pci(GPU_ADDRESSES[3])
    elif fault == "no file":
        (directory / "reset").unlink()
    elif fault == "no method":
        machine.file(3, "reset_method", b"\n")
    elif fault == "other driver":
        (directory / "driver").unlink()
        machine.tree.link(f"{machine.directory(3)}/driver", "../../../../bus/pci/drivers/nouveau")
    elif fault == "open group":
        machine.open_by_process("/dev/vfio/43")
    else:
        machine.file(3, "vfio-dev/vfio9/dev", b"511:9\n")
        machine.open_by_process("/dev/vfio/devices/vfio9")
    report = machine.reset(2, 3)
    assert outcomes(report) == ["gpu_reset_left_out", outcome]
    assert report.gpus[1].evidence == evidence
    assert report.gpus[0].evidence == f"{GPU_ADDRESSES[3]} cannot be reset"
    assert not machine.was_reset(2)


def test_a_file_of_another_group_is_no_use(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.open_by_process("/dev/vfio/43")
    machine.open_by_process("/dev/vfio/vfio", 4712)
    (machine.root / "proc/4713").mkdir()
    assert outcomes(machine.reset(2)) == ["reset"]


def test_open_files_that_cannot_be_read_are_a_use(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.tree.write("proc/4711/fd", "no directory\n")
    assert only(machine.reset(2)) == ("gpu_in_use", "the open files of some process cannot be read")


@pytest.mark.parametrize(
    ("held", "evidence"),
    [(frozenset({2, 7}), "an allocation is on a slot of the order"), (None, "what the node holds cannot be read")],
)
def test_the_agent_resets_no_gpu_of_an_allocation(tmp_path: Path, held: frozenset[int] | None, evidence: str) -> None:
    machine = Machine(tmp_path, 2)
    assert only(machine.reset(2, held=held)) == ("gpu_in_use", evidence)
    assert not machine.was_reset(2)
    assert outcomes(machine.reset(2, held=frozenset({3}))) == ["reset"]


def test_a_driver_without_hardware_resets_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    assert only(machine.reset(2, driver="noop")) == ("gpu_reset_unsupported", "the driver noop has no hardware")
    assert not machine.was_reset(2)


def test_without_nvidia_smi_a_gpu_of_the_driver_is_not_supported(tmp_path: Path, nvml: FakeNvml) -> None:
    machine = Machine(tmp_path / "root")
    machine.with_nvml(nvml)
    assert only(machine.reset(0)) == ("gpu_reset_unsupported", "nvidia-smi is not installed")


@pytest.mark.quick("GPU 00000000:0F:00.0: In use by another client-255-gpu_in_use")
@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [
        ("GPU 00000000:0F:00.0: In use by another client", 255, "gpu_in_use"),
        ("Unable to reset GPU because it's being used by some other process", 255, "gpu_in_use"),
        ("Resetting GPU 00000000:0F:00.0 is not supported.", 3, "gpu_reset_unsupported"),
        ("Unknown Error", 255, "gpu_reset_failed"),
    ],
)
def test_what_nvidia_smi_refuses(tmp_path: Path, nvml: FakeNvml, text: str, code: int, outcome: str) -> None:
    machine = Machine(tmp_path / "root", 1)
    machine.with_nvml(nvml)
    machine.nvidia_smi(f"print({text!r})\nsys.exit({code})\n")
    report = machine.reset(1, 0)
    assert outcomes(report) == ["gpu_reset_left_out", outcome]
    assert report.gpus[1].evidence.startswith(f"nvidia-smi exited with {code}: {text[:20]}")
    assert not machine.was_reset(1)


@pytest.mark.quick("In use by another client")
@pytest.mark.parametrize("text", ["In use by another client", "Resetting GPU is not supported.", "Unknown Error"])
def test_a_refusal_of_several_gpus_is_never_untouched(tmp_path: Path, nvml: FakeNvml, text: str) -> None:
    machine = Machine(tmp_path / "root")
    machine.with_nvml(nvml)
    config = machine.root / machine.directory(3) / "config"
    gone = f"pathlib.Path({str(config)!r}).write_bytes(bytes([255] * 64))\n"
    machine.nvidia_smi(f"{gone}print({text!r})\nsys.exit(3)\n")
    report = machine.reset(0, 3)
    assert outcomes(report) == ["gpu_reset_failed", "gpu_reset_failed"]
    assert report.gpus[0].evidence == f"nvidia-smi exited with 3: {text}"
    assert report.gpus[1].evidence == f"the device does not answer on the bus; nvidia-smi exited with 3: {text}"


def test_a_write_that_the_kernel_refuses(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    reset = machine.root / machine.directory(2) / "reset"
    reset.unlink()
    reset.mkdir()
    assert only(machine.reset(2)) == ("gpu_reset_failed", "Is a directory")
    assert functions.reset(machine.root, GPU_ADDRESSES[0]).supported is False


def test_after_a_failure_the_others_are_left_out(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, 2, 3)
    reset = machine.root / machine.directory(2) / "reset"
    reset.unlink()
    reset.mkdir()
    assert outcomes(machine.reset(1, 2, 3)) == ["reset", "gpu_reset_failed", "gpu_reset_left_out"]
    assert not machine.was_reset(3)


@pytest.mark.quick("config.write_bytes(bytes([255] * 64))-the device does not answer on the bus")
@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ("config.write_bytes(bytes([255] * 64))", "the device does not answer on the bus"),
        ("shutil.rmtree(config.parent)", "the device is gone"),
        ("config.write_bytes(bytes([0xde, 0x10, 0x31, 0x23]))",
         "it was 10de:2330 of driver nvidia, and is 10de:2331 of driver nvidia"),
        ("(config.parent / 'driver').unlink()", "it was 10de:2330 of driver nvidia, and is 10de:2330 of driver None"),
        ("answers.write_text(answers.read_text().replace('1650000000000', '1650000000099'))",
         "its serial number was 1650000000000 and is 1650000000099"),
        ("answers.write_text(answers.read_text().replace('0000:0F', '0000:0E'))", "NVML does not answer for it"),
    ],
)  # fmt: skip
def test_a_reset_that_another_look_does_not_prove_has_failed(
    tmp_path: Path, nvml: FakeNvml, change: str, evidence: str
) -> None:
    machine = Machine(tmp_path / "root")
    machine.with_nvml(nvml)
    config = machine.root / machine.directory(0) / "config"
    paths = f"config = pathlib.Path({str(config)!r})\nanswers = pathlib.Path({str(tmp_path / 'answers')!r})\n"
    machine.nvidia_smi(f"import shutil\n{paths}{change}\n")
    assert only(machine.reset(0)) == ("gpu_reset_unverified", evidence)


def test_a_gpu_that_fell_off_the_bus_is_reset(tmp_path: Path, nvml: FakeNvml) -> None:
    machine = Machine(tmp_path / "root")
    machine.with_nvml(nvml)
    machine.file(0, "config", b"\xff" * 64)
    config = machine.root / machine.directory(0) / "config"
    machine.nvidia_smi(f"pathlib.Path({str(config)!r}).write_bytes(bytes([0xde, 0x10, 0x30, 0x23]))\n")
    assert outcomes(machine.reset(0)) == ["reset"]


@pytest.mark.full
def test_a_reset_that_hangs_ends_with_the_task(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    reset = machine.root / machine.directory(2) / "reset"
    reset.unlink()
    os.mkfifo(reset)
    outcome, evidence = only(machine.reset(2, seconds=3.0))
    assert (outcome, evidence.startswith("no answer within")) == ("gpu_reset_failed", True)
    assert left_behind("gpu_reset") == []


def test_a_task_whose_time_is_over_resets_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    outcome, _ = only(machine.reset(2, seconds=0.0))
    assert outcome == "gpu_reset_left_out"
    assert not machine.was_reset(2)


def _resetting(root: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "node_agent.gpu_reset.functions" in process.cmdline() and str(root) in process.cmdline():
                found.append(process)
    return [one for one in found if _lives(one)]


def _lives(process: psutil.Process) -> bool:
    """False for one that has ended since it was listed."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _words(directory: Path) -> set[str]:
    """The arguments of all of them."""
    words: set[str] = set()
    for one in _resetting(directory):
        with suppress(psutil.NoSuchProcess):
            words |= set(one.cmdline())
    return words


@pytest.mark.full
def test_a_killed_agent_leaves_no_process_and_a_repetition_resets(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    reset = machine.root / machine.directory(2) / "reset"
    reset.unlink()
    os.mkfifo(reset)
    command = [sys.executable, "-m", "tests.discovery.gpu_resets.killed", str(tmp_path), "2"]
    agent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": PYTHONPATH})
    wait_for(lambda: "reset" in _words(tmp_path), "the reset")
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    try:
        wait_for(lambda: _resetting(tmp_path) == [], "no process")
    finally:
        for left in _resetting(tmp_path):
            with suppress(psutil.NoSuchProcess):
                left.kill()
    reset.unlink()
    reset.write_bytes(b"")
    assert outcomes(machine.reset(2)) == ["reset"]
    assert machine.was_reset(2)
