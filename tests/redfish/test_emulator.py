"""The client against sushy-tools' emulator of BMCs, over a guest of QEMU that boots nothing: real effects, and its oddities."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess, BootTarget, Deadlines, PowerAction, PowerState
from node_agent.redfish.problems import BmcProblem, CertificateChanged, CredentialsRefused, NotSettled, NotSupported
from node_agent.redfish.tls import read_certificate
from tests.redfish.running import run
from tests.redfish.tools import tool
from tests.support.bmc.server import certificate
from tests.support.waiting import wait_for

pytestmark = pytest.mark.hardware
DEADLINES = Deadlines(command_seconds=60, settle_seconds=40, poll_seconds=0.3, queue_seconds=1)
FIRMWARE = "/usr/share/OVMF/OVMF_CODE_4M.fd"
PORT = 8765
CONFIGURATION = f"""
SUSHY_EMULATOR_LIBVIRT_URI = "qemu:///system"
SUSHY_EMULATOR_BOOT_LOADER_MAP = {{"UEFI": {{"x86_64": "{FIRMWARE}"}}, "Legacy": {{"x86_64": None}}}}
"""


class Medium(http.server.BaseHTTPRequestHandler):
    """Serves a medium of zeros."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 20))
        self.end_headers()
        self.wfile.write(bytes(1 << 20))

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Nothing: the output is the test's."""


@contextlib.contextmanager
def media() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Medium)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/secret-token/medium.iso"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[str]:
    """A domain and its pool on the libvirtd of the run; the domain's UUID."""
    libvirt = pytest.importorskip("libvirt")
    try:
        connection = libvirt.open("qemu:///system")
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd: {error}")
    if not Path(FIRMWARE).exists():
        pytest.skip(f"{FIRMWARE} is missing: apt-get install ovmf")
    pool = tmp_path / "pool"
    pool.mkdir()
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)
    made = connection.storagePoolCreateXML(
        f"<pool type='dir'><name>default</name><target><path>{pool}</path></target></pool>"
    )
    identity, disk = str(uuid.uuid4()), tmp_path / "disk.raw"
    with disk.open("wb") as empty:
        empty.truncate(16 << 20)
    domain = connection.defineXML(
        f"<domain type='qemu'><name>bmc-test</name><uuid>{identity}</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu>"
        "<os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os><features><acpi/></features>"
        "<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><disk type='file' device='disk'>"
        "<driver name='qemu' type='raw'/>"
        f"<source file='{disk}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    try:
        yield identity
    finally:
        if domain.isActive():
            domain.destroy()
        domain.undefine()
        made.destroy()
        connection.close()


@pytest.fixture
def access(machine: str, tmp_path: Path) -> Iterator[BmcAccess]:
    """The emulator in front of the machine."""
    hashing = "import bcrypt; print(bcrypt.hashpw(b'first-secret', bcrypt.gensalt(4)).decode())"
    hashed = subprocess.run(
        [tool("python"), "-c", hashing], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    (tmp_path / "htpasswd").write_text(f"berth:{hashed.strip()}\n")
    pem, key, fingerprint = certificate(1)
    (tmp_path / "certificate.pem").write_bytes(pem)
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "state").mkdir()
    # The libvirtd of the run has guests of other tests too.
    own = f'SUSHY_EMULATOR_ALLOWED_INSTANCES = ["{machine}"]\n'
    paths = f'SUSHY_EMULATOR_AUTH_FILE = "{tmp_path}/htpasswd"\nSUSHY_EMULATOR_STATE_DIR = "{tmp_path}/state"\n'
    (tmp_path / "emulator.conf").write_text(CONFIGURATION + own + paths)
    command = [tool("sushy-emulator"), "--config", str(tmp_path / "emulator.conf"), "-i", "127.0.0.1", "-p", str(PORT)]
    command += ["--ssl-certificate", str(tmp_path / "certificate.pem"), "--ssl-key", str(tmp_path / "key.pem")]
    url = f"https://127.0.0.1:{PORT}"
    with (tmp_path / "emulator.log").open("w") as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
        )
    try:
        wait_for(lambda: answers(url, child), "the emulator's certificate", 30)
        yield BmcAccess(url, "berth", "first-secret", fingerprint)
    finally:
        child.kill()
        child.wait()


def answers(url: str, child: subprocess.Popen[bytes]) -> bool:
    assert child.poll() is None, "the emulator ended"
    try:
        return bool(run(read_certificate(url)))
    except BmcProblem:
        return False


def test_the_client_commands_an_emulated_machine(access: BmcAccess, machine: str) -> None:
    async def scene() -> None:
        bmc = RedfishBmc(access, DEADLINES)
        described = await bmc.describe()
        assert (described.uuid, described.power_state) == (machine, PowerState.OFF)
        assert (described.disks, described.firmware) == ((), ())
        await bmc.settle(PowerState.OFF)
        with media() as url:
            assert (await bmc.insert_medium(url)).inserted
            override = await bmc.boot_once(BootTarget.CD)
            assert (override.target, override.once) == ("Cd", False), "the emulator ignores Once"
            assert (await bmc.set_boot_disk()).target == "Hdd"
            assert not (await bmc.eject_medium()).inserted
        assert (await bmc.set_power(PowerAction.ON)).sent == ("On",)
        assert (await bmc.set_power(PowerAction.RESTART)).sent == ("ForceOff", "On")
        with pytest.raises(NotSettled):  # no system is there to react to the power button
            await RedfishBmc(access, Deadlines(settle_seconds=3, queue_seconds=1)).set_power(PowerAction.GRACEFUL_OFF)
        assert (await bmc.set_power(PowerAction.FORCE_OFF)).sent == ("ForceOff",)
        assert await bmc.set_power(PowerAction.FORCE_OFF) is not None
        with pytest.raises(NotSupported):
            await bmc.rotate("second-secret")
        with pytest.raises(NotSupported):
            await bmc.read_log()
        await bmc.close()

    run(scene(), 120)


def test_the_emulator_refuses_a_wrong_password_and_the_client_another_certificate(
    access: BmcAccess, machine: str
) -> None:
    async def scene() -> None:
        wrong = BmcAccess(access.url, "berth", "wrong-secret", access.certificate_sha256)
        with pytest.raises(CredentialsRefused):
            await RedfishBmc(wrong, DEADLINES).power_state()
        with pytest.raises(CertificateChanged):
            await RedfishBmc(BmcAccess(access.url, "berth", "first-secret", certificate(2)[2]), DEADLINES).power_state()

    run(scene())
