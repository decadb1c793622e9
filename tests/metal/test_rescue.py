"""The rescue system on a machine of QEMU: the tenant's key alone logs in, at the reported host key, and its disk is untouched."""

from __future__ import annotations

import hashlib
import socket
import subprocess
from pathlib import Path

import pytest

from node_agent.wire.deploy_tasks import MetalRescueReport
from tests.metal.lab import Lab
from tests.metal.qemu import Machine, wait_until_ssh
from tests.metal.server import TOKEN
from tests.support.waiting import wait_for

# Quicker, without a machine: tests/deploy_system/test_rescues.py and tests/deploy_system/effects/test_rescues.py.
pytestmark = [pytest.mark.hardware, pytest.mark.timeout(600)]
MARKER = "TENANT-WAS-HERE-0a54"
NOTHING_LEFT = (
    "ls -d /run/berth /opt/berth /etc/berth /medium/* /run/rescue/authorized_keys 2>/dev/null; cat /proc/[0-9]*/environ"
)
"""Prints what is left of the deploy system, and the environments of all processes."""


def ssh(lab: Lab, port: int, key: Path, command: str) -> list[str]:
    """A login with this key, at the reported host key."""
    return [
        "ssh", "-F", "none", "-i", str(key), "-p", str(port), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o",
        "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={lab.directory}/known", "-o", "ConnectTimeout=10",
        "root@127.0.0.1", command,
    ]  # fmt: skip


def test_the_tenants_key_alone_logs_in_to_the_rescue_system_and_finds_its_disk_untouched(lab: Lab) -> None:
    machine = Machine(lab.directory, {"VIRTIO1": "virtio"})
    (lab.directory / "root").mkdir()
    (lab.directory / "root" / "marker").write_text(MARKER)
    disk = machine.disk("VIRTIO1")
    subprocess.run(["/sbin/mkfs.ext4", "-q", "-d", lab.directory / "root", disk], check=True)
    before, key = hashlib.sha256(disk.read_bytes()).hexdigest(), lab.tenant_key()
    other = lab.directory / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lab.orders.give({"kind": "rescue", "parameters": {"deploy_epoch": 1, "ssh_public_keys": [key]}})
    with machine.running(lab.own_medium(), port):
        wait_for(lambda: bool(lab.orders.results), "the rescue is prepared", 300)
        report = MetalRescueReport.model_validate(lab.orders.results[0])
        (lab.directory / "known").write_text(f"[127.0.0.1]:{port} {report.host_key}\n")
        found = wait_until_ssh(ssh(lab, port, lab.directory / "key", "mount -o ro /dev/vda /mnt && cat /mnt/marker"))
        assert found == MARKER, machine.console[-3000:]

        def is_refused() -> bool:
            # An emulated machine may answer later than the client waits.
            answer = subprocess.run(ssh(lab, port, other, "true"), capture_output=True, text=True, timeout=120)
            assert answer.returncode == 255
            return "Permission denied (publickey)" in answer.stderr

        wait_for(is_refused, "a refusal of another key: no password, and no other key")
        left = wait_until_ssh(ssh(lab, port, lab.directory / "key", NOTHING_LEFT))
        assert not left.startswith("/"), left
        assert TOKEN not in left
        assert "BERTH" not in left
    assert hashlib.sha256(disk.read_bytes()).hexdigest() == before
