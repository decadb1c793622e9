"""The client against sushy-tools' emulator of BMCs, over a guest of QEMU that boots nothing: real effects, and its oddities."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess, BootTarget, Deadlines, PowerAction, PowerState
from node_agent.redfish.problems import CertificateChanged, CredentialsRefused, NotSettled, NotSupported
from tests.redfish.emulator import defined, emulated
from tests.redfish.running import run
from tests.support.bmc.server import certificate

pytestmark = pytest.mark.hardware
DEADLINES = Deadlines(command_seconds=60, settle_seconds=40, poll_seconds=0.3, queue_seconds=1)


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
    system = "<memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>"
    with defined(tmp_path, system, "", 16 << 20) as identity:
        yield identity


@pytest.fixture
def access(machine: str, tmp_path: Path) -> Iterator[BmcAccess]:
    """The emulator in front of the machine."""
    with emulated(tmp_path, machine) as found:
        yield found


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
        with pytest.raises(NotSupported):  # no update goes further: its targets are those of the inventory
            await bmc.firmware()
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
