"""Boots a guest of 512 bytes with each accelerator of QEMU: opening `/dev/kvm` does not prove that KVM runs a guest."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from node_agent.checks.finding import Code, Finding

# mov dx,0xe9; mov al,'K'; out dx,al; mov dx,0xf4; mov al,0x10; out dx,al; hlt; jmp $-1
BOOT_SECTOR = bytes.fromhex("bae900b04beebaf400b010eef4ebfd").ljust(510, b"\0") + b"\x55\xaa"
EXIT_OF_GUEST = 0x10 << 1 | 1
KVM_SECONDS_MAX = 2.0
# A loaded host may need seconds for a guest that takes 0.2 s otherwise.
EMULATION_SECONDS_MAX = 20.0
QEMU = "qemu-system-x86_64"


def check_emulation(
    qemu: str = QEMU, boot_sector: bytes = BOOT_SECTOR, seconds: float = EMULATION_SECONDS_MAX
) -> Finding:
    """Check that QEMU boots a guest without KVM: every host with QEMU passes."""
    fault = _fault("tcg", qemu, boot_sector, seconds)
    remedy = "install it: apt-get install --no-install-recommends qemu-system-x86"
    return Finding("qemu", fault, Code.EMULATION_FAILS, remedy) if fault else Finding("qemu", "a probe guest boots")


def check_kvm(qemu: str = QEMU, boot_sector: bytes = BOOT_SECTOR, seconds: float = KVM_SECONDS_MAX) -> Finding:
    """Report whether KVM boots a guest within `seconds`. Never a failure: without KVM guests run by emulation."""
    fault = _fault("kvm", qemu, boot_sector, seconds)
    if fault is None:
        return Finding("kvm", "a probe guest boots")
    remedy = "switch on virtualization in the firmware and load kvm_intel or kvm_amd"
    return Finding("kvm", f"guests run by emulation: {fault}", Code.KVM_RUNS_NO_GUEST, remedy)


def kvm_boots() -> bool:
    """Whether KVM boots a guest."""
    return _fault("kvm", QEMU, BOOT_SECTOR, KVM_SECONDS_MAX) is None


def _fault(accelerator: str, qemu: str, boot_sector: bytes, seconds: float) -> str | None:
    """Why the probe guest did not boot; None if it did."""
    with tempfile.TemporaryDirectory(prefix="berth-check-") as directory:
        disk = Path(directory) / "boot"
        disk.write_bytes(boot_sector)
        command = [
            qemu, "-accel", accelerator, "-M", "pc", "-m", "16", "-nodefaults", "-display", "none", "-no-reboot",
            "-drive", f"file={disk},format=raw,if=ide", "-debugcon", "stdio",
            "-device", "isa-debug-exit,iobase=0xf4,iosize=4",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return f"the probe guest did not end within {seconds:g} s"
        except OSError as error:
            return f"{qemu} does not start: {error.strerror}"
    if done.returncode == EXIT_OF_GUEST and done.stdout.endswith(b"K"):
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return f"{qemu} exited with {done.returncode}{f': {said[0][:200]}' if said else ''}"
