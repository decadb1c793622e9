"""What the tests on a machine of QEMU share: the boots, the tasks, the tenant's SSH."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.local.machines.networks import HOST
from berth.local.machines.raw_disks import read_raw
from node_agent.wire.deploy_medium import DeployMedium
from node_agent.wire.deploy_tasks import MetalDeployReport, MetalInspectReport, MetalWipeReport
from tests.metal.media import own_medium
from tests.metal.qemu import DISK_BYTES, MAC, Machine, wait_until_ssh
from tests.metal.server import TOKEN, Orders

BUILD = Path(__file__).parents[2] / "build"
MEDIUM = Path(os.environ.get("BERTH_TEST_DEPLOY_MEDIUM", BUILD / "metal/deploy.iso"))
GUEST_IMAGE = Path(os.environ.get("BERTH_TEST_GUEST_IMAGE", BUILD / "guests/mini.qcow2"))
SWITCH_FRAME = bytes.fromhex(
    "0180c200000e001122334455 88cc"
    "0207 04 001122334455"  # chassis: a MAC
    "040c 05 45746865726e6574312f34"  # port: Ethernet1/4
    "0602 0078 0a06 6c6561662d31 0000"  # 120 s; system name: leaf-1
)


@dataclass
class Lab:
    """One test's server, medium and directory."""

    directory: Path
    medium: Path
    orders: Orders
    port: int
    ca_pem: str

    def own_medium(self) -> Path:
        """The medium of one boot, which reaches this test's server."""
        configuration = DeployMedium.model_validate(
            {
                "node_id": "5be7b27e-0000-4000-8000-000000000001", "deploy_epoch": 1, "ca_pem": self.ca_pem,
                "api_url": f"https://{HOST}:{self.port}", "node_api_url": f"https://{HOST}:{self.port}", "token": TOKEN,
                "expires_at": "2100-01-01T00:00:00Z", "network": {"mac": MAC, "address": "10.0.2.15/24", "gateway": HOST},
            }
        )  # fmt: skip
        return own_medium(self.medium, configuration, self.directory / "own.iso")

    def boot(self, machine: Machine, *orders: dict[str, Any]) -> list[dict[str, Any]]:
        """Start the deploy system, have it do this, wait until it is off; the results."""
        self.orders.give(*orders)
        machine.boot_until_off(self.own_medium())
        results = self.orders.results
        assert len(results) == len(orders), machine.console[-3000:]
        for result in results:
            assert "defect" not in result, result["defect"]
        return results

    def inspected(self, machine: Machine) -> MetalInspectReport:
        """One boot that inspects."""
        (result,) = self.boot(machine, {"kind": "inspect", "parameters": {"deploy_epoch": 1}})
        return MetalInspectReport.model_validate(result)

    def serve_mini_guest(self) -> int:
        """Compress the test guest's disk for the image server; its size."""
        raw = self.directory / "mini.raw"
        subprocess.run(["qemu-img", "convert", "-O", "raw", str(GUEST_IMAGE), str(raw)], check=True)
        content = raw.read_bytes()
        self.orders.image = subprocess.run(["zstd", "-q", "-c"], input=content, capture_output=True, check=True).stdout
        return len(content)

    def deploy_order(self, root_serial: str, image_bytes: int, key: str, **more: Any) -> dict[str, Any]:
        """`metal.deploy` of the served image."""
        image = {
            "name": "mini", "url": f"https://{HOST}:{self.port}/image",
            "sha256": hashlib.sha256(self.orders.image).hexdigest(),
        }  # fmt: skip
        parameters = {
            "deploy_epoch": 1, "root_disk": {"serial": root_serial, "size_bytes": DISK_BYTES}, "image": image,
            "image_bytes": image_bytes,
            "config_drive": {"hostname": "box", "instance_id": "i-1", "ssh_public_keys": [key]}, **more,
        }  # fmt: skip
        return {"kind": "deploy", "parameters": parameters}

    def tenant_key(self) -> str:
        """A new key of the tenant; its public part."""
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / "key"], check=True)
        return (self.directory / "key.pub").read_text().strip()

    def on_tenants_system(self, machine: Machine, host_key: str, command: str) -> str:
        """Start from disk, log in with the expected host key and run a command; killed afterwards."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (self.directory / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        ssh = [
            "ssh", "-F", "none", "-i", str(self.directory / "key"), "-p", str(port), "-o", "BatchMode=yes",
            "-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={self.directory}/known", "-o", "ConnectTimeout=10",
            "tenant@127.0.0.1", command,
        ]  # fmt: skip
        with machine.running(ssh_port=port):
            return wait_until_ssh(ssh)


@contextmanager
def announcing(port: int) -> Iterator[None]:
    """A switch that announces itself on the machine's second network port."""
    ended = threading.Event()

    def announce() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not ended.wait(0.3):
                sender.sendto(SWITCH_FRAME, ("127.0.0.1", port))

    thread = threading.Thread(target=announce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def wiped(result: dict[str, Any]) -> MetalWipeReport:
    """The report of a wipe."""
    assert "code" not in result, result
    return MetalWipeReport.model_validate(result)


def deployed(result: dict[str, Any]) -> MetalDeployReport:
    """The report of a deploy."""
    assert "code" not in result, result
    return MetalDeployReport.model_validate(result)


def wipe_order(report: MetalInspectReport, *markers: bytes, **more: Any) -> dict[str, Any]:
    """`metal.wipe` of the disks and variables that inspection found."""
    disks = [{"serial": disk.serial, "size_bytes": disk.size_bytes} for disk in report.topology.disks or []]
    variables = [variable.model_dump() for variable in report.uefi_variables or []]
    parameters = {
        "deploy_epoch": 1, "disks": disks, "uefi_variables": variables if report.uefi_variables is not None else None,
        "markers": [marker.hex() for marker in markers], **more,
    }  # fmt: skip
    return {"kind": "wipe", "parameters": parameters}


def contains(path: Path, marker: bytes) -> bool:
    """Whether the marker is anywhere on the raw disk."""
    return read_raw(path, marker).has_marker
