"""The checks of a host find what a host lacks; they pass only where a guest really booted."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from node_agent.checks.accelerator import BOOT_SECTOR, QEMU, check_emulation, check_kvm
from node_agent.checks.host import check_host
from node_agent.checks.hypervisor import check_libvirt, check_traversal
from node_agent.checks.storage import check_direct_io

needs_qemu = pytest.mark.skipif(shutil.which(QEMU) is None, reason=f"{QEMU} is not installed")


@needs_qemu
def test_emulation_boots_the_probe_guest() -> None:
    assert check_emulation().passed


@needs_qemu
def test_a_guest_that_runs_and_never_ends_does_not_pass() -> None:
    endless = b"\xeb\xfe".ljust(510, b"\0") + BOOT_SECTOR[510:]
    finding = check_emulation(boot_sector=endless, seconds=1)
    assert not finding.passed
    assert "did not end within 1 s" in finding.found


def program(directory: Path, text: str) -> str:
    path = directory / "qemu"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("exit 33", "exited with 33"),
        ("printf K", "exited with 0"),
        ("echo no such machine >&2; exit 1", "no such machine"),
    ],
    ids=["no-byte", "no-exit-status", "message"],
)
def test_both_the_byte_and_the_exit_status_of_the_guest_are_required(tmp_path: Path, text: str, found: str) -> None:
    finding = check_emulation(program(tmp_path, text))
    assert not finding.passed
    assert found in finding.found


def test_without_qemu_the_line_says_what_to_install() -> None:
    line = check_emulation("qemu-that-does-not-exist").line()
    assert line.startswith("FAIL")
    assert "apt-get install --no-install-recommends qemu-system-x86" in line


def test_a_kvm_that_runs_nothing_is_reported_as_emulation_and_fails_no_host(tmp_path: Path) -> None:
    finding = check_kvm(program(tmp_path, "exec sleep 30"), seconds=0.2)
    assert finding.passed
    assert finding.found.startswith("guests run by emulation: the probe guest did not end within 0.2 s")


def test_a_kvm_that_boots_the_guest_is_reported(tmp_path: Path) -> None:
    assert check_kvm(program(tmp_path, "printf K; exit 33")).found == "a probe guest boots"


def test_a_directory_that_does_not_exist_fails_and_a_check_leaves_nothing(tmp_path: Path) -> None:
    assert not check_direct_io(tmp_path / "absent").passed
    check_direct_io(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_direct_io_fails_with_a_remedy(tmp_path: Path) -> None:
    module = "node_agent.checks.storage"
    check = (
        f"import pathlib, {module} as storage; print(storage.check_direct_io(pathlib.Path({str(tmp_path)!r})).line())"
    )
    mount = f"mount -t ramfs ramfs {tmp_path} || exit 77; exec {sys.executable} -c {shlex.quote(check)}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, text=True, check=False)
    if done.returncode in (1, 77):
        pytest.skip("this user may not mount a file system")
    assert done.returncode == 0, done.stderr
    assert (
        "does not support O_DIRECT [direct_io_missing]; put BERTH_AGENT_STATE_DIR on a directory of ext4 or XFS"
        in done.stdout
    )


@pytest.mark.full
def test_the_state_directory_is_checked_only_if_it_is_named(tmp_path: Path) -> None:
    def names(environment: dict[str, str]) -> list[str]:
        return [finding.name for finding in check_host(environment)]

    assert names({}) == ["qemu", "kvm"]
    assert names({"BERTH_AGENT_STATE_DIR": str(tmp_path)}) == ["state directory", "qemu", "kvm"]


def test_a_guest_directory_that_qemu_cannot_reach_names_the_place_and_the_remedy(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "guests").mkdir(parents=True)
    closed.chmod(0o700)
    line = check_traversal(closed / "guests").line()
    assert line.startswith("FAIL")
    assert f"chmod o+x {closed}" in line
    assert check_traversal(Path("/usr/bin")).passed
    assert not check_traversal(tmp_path / "absent").passed


def test_a_libvirtd_that_does_not_answer_is_a_failure_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    line = check_libvirt("qemu+unix:///system?socket=/nonexistent/libvirt-sock").line()
    assert line.startswith("FAIL")
    assert "libvirtd" in line or "requirements-libvirt.lock" in line
    monkeypatch.setitem(sys.modules, "libvirt", None)
    assert "requirements-libvirt.lock" in check_libvirt("qemu:///system").line()


@pytest.mark.full
def test_libvirt_is_checked_for_its_driver_alone(tmp_path: Path) -> None:
    names = {
        finding.name for finding in check_host({"BERTH_GUEST_DIR": str(tmp_path), "BERTH_AGENT_DRIVER": "libvirt"})
    }
    assert {"libvirt", "guest directory", "qemu user", "virtlogd", "bridge filter", "iommu", "huge pages"} <= names
    assert {"libvirt", "guest directory"}.isdisjoint(finding.name for finding in check_host({}))


@pytest.mark.hardware
def test_a_libvirtd_that_answers_passes() -> None:
    finding = check_libvirt("qemu:///system")
    assert finding.passed, finding.line()
