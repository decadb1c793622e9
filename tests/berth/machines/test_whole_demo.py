"""`berth demo --deploy-medium` with one machine: every step is proven, and an end of any kind leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from berth.local.demo.machines.steps import StepName
from berth.local.machines.plan import plan_machines
from berth.local.servers import answers
from tests.metal.lab import GUEST_IMAGE, MEDIUM
from tests.redfish.tools import TOOLS, tool
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[3]
START_SECONDS_MAX = 600.0
STOP_SECONDS_MAX = 120.0

# Quicker, without a machine: the other files of this folder.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(3000)]


@pytest.fixture
def machine_dir() -> Path:
    """Where QEMU's user may enter; one for each process of the run."""
    for program in ("xorriso", "cpio", "virsh", "zstd", "qemu-img"):
        if subprocess.run(["which", program], capture_output=True).returncode:
            pytest.skip(f"{program} is not installed")
    if not MEDIUM.exists() or not GUEST_IMAGE.exists():
        pytest.skip("there is no deploy medium, or no guest image: make test-hardware")
    tool("sushy-emulator")
    if subprocess.run(["virsh", "-c", "qemu:///system", "list"], capture_output=True).returncode:
        pytest.skip("no libvirtd")
    return Path(f"/var/tmp/berth-test-machines-{os.getpid()}")


def command(state: Path, machine_dir: Path) -> list[str]:
    """The demo with one machine."""
    paths = [
        "--state-dir",
        state,
        "--guest-image",
        GUEST_IMAGE,
        "--deploy-medium",
        MEDIUM,
        "--machine-dir",
        machine_dir,
    ]
    start = [ROOT / ".venv/bin/berth", "demo", "--machines", "1", "--redfish-tools", TOOLS, "--output", "json"]
    return [str(word) for word in [*start, *paths]]


def left_behind(state: Path, machine_dir: Path) -> list[str]:
    """Processes, domains, pools, files, routes and listeners of a demo."""
    found = [str(machine_dir)] if machine_dir.exists() else []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(machine_dir) in line or f"{state}/" in line:
            found.append(f"process {process.pid}: {line}")
    for listed, shown in (("list", "dumpxml"), ("pool-list", "pool-dumpxml")):
        for name in virsh(listed, "--all", "--name").split():
            found += [f"{listed} {name}"] * (str(machine_dir) in virsh(shown, name))
    routes = subprocess.run(["ip", "route", "show", "table", "local"], capture_output=True, text=True).stdout
    found += [machine.address for machine in plan_machines(1) if f"{machine.address} " in routes]
    ports = json.loads((state / "state.json").read_text())["ports"]
    return found + [f"port {port} of {name}" for name, port in ports.items() if answers(port)]


def virsh(*words: str) -> str:
    return subprocess.run(["virsh", "-c", "qemu:///system", *words], capture_output=True, text=True).stdout


def is_booting(machine_dir: Path) -> bool:
    """Whether the machine's processor runs."""
    names = virsh("list", "--name").split()
    return any(str(machine_dir) in virsh("dumpxml", name) for name in names)


def test_one_machine_from_enrolment_to_its_second_tenant(machine_dir: Path, tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path / "demo", machine_dir), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["held"]
    assert report["failures"] == []
    (machine,) = report["machines"]
    assert [(step["title"], step["proven"]) for step in machine["steps"]] == [(name.value, True) for name in StepName]
    assert report["checks"]
    assert left_behind(tmp_path / "demo", machine_dir) == []
    assert (tmp_path / "demo" / "log" / "console-machine-1.log").stat().st_size > 0


def test_an_interrupt_while_a_machine_boots_leaves_nothing(machine_dir: Path, tmp_path: Path) -> None:
    state = tmp_path / "demo"
    with (tmp_path / "output").open("w") as output:
        playing = subprocess.Popen(command(state, machine_dir), stdout=output, stderr=output, start_new_session=True)
    try:
        wait_for(lambda: playing.poll() is not None or is_booting(machine_dir), "the machine boots", START_SECONDS_MAX)
        assert playing.poll() is None, (tmp_path / "output").read_text()
        assert len(left_behind(state, machine_dir)) > 5, "what runs is seen"
        os.killpg(playing.pid, signal.SIGINT)
        assert playing.wait(STOP_SECONDS_MAX) == 130
    finally:
        playing.kill()
    assert "interrupted: NOT proven" in (tmp_path / "output").read_text()
    assert left_behind(state, machine_dir) == []
