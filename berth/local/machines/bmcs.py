"""sushy-tools' emulator of BMCs in front of one domain, as a process that ends with the block that uses it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.cli.known_stack import StackProblem
from berth.local.machines.certificates import self_signed
from berth.local.machines.domains import FIRMWARE, LIBVIRT
from berth.local.servers import free_port, new_password, wait_until
from node_agent.redfish.contract import BmcAccess
from node_agent.redfish.problems import BmcProblem
from node_agent.redfish.tls import read_certificate

USER = "berth"
STOP_SECONDS_MAX = 5.0
_HASH = "import sys, bcrypt; print(bcrypt.hashpw(sys.stdin.buffer.read(), bcrypt.gensalt(4)).decode())"


def program(tools: Path, name: str) -> str:
    """The path of a program of requirements-redfish.lock. Raises `StackProblem` where it is not installed."""
    path = tools / "bin" / name
    if not path.exists():
        raise StackProblem(f"{path} is not installed: make build/redfish/ready")
    return str(path)


@contextmanager
def emulated(
    directory: Path, identity: str, tools: Path, started: Callable[[int], None] = lambda _: None
) -> Iterator[BmcAccess]:
    """The emulator in front of the domain; its files are in `directory`. `started` receives its process id.

    Raises `StackProblem`, and `ServerProblem` if it does not answer.
    """
    emulator, password = program(tools, "sushy-emulator"), new_password()
    hashed = subprocess.run(
        [program(tools, "python"), "-c", _HASH], input=password.encode(), check=True, capture_output=True, timeout=60
    ).stdout.decode()
    (directory / "htpasswd").write_text(f"{USER}:{hashed.strip()}\n")
    pem, key, fingerprint = self_signed(f"bmc-{identity[:8]}")
    (directory / "certificate.pem").write_bytes(pem)
    (directory / "key.pem").write_bytes(key)
    (directory / "emulator").mkdir()
    configuration = directory / "emulator.conf"
    configuration.write_text(_configuration(directory, identity))
    port = free_port()
    command = [emulator, "--config", str(configuration), "-i", "127.0.0.1", "-p", str(port)]
    command += ["--ssl-certificate", str(directory / "certificate.pem"), "--ssl-key", str(directory / "key.pem")]
    url, output = f"https://127.0.0.1:{port}", directory / "emulator.log"
    with output.open("w") as log:
        # In its own session: a Ctrl-C reaches the caller alone, which ends it in order.
        child = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(directory)},
        )  # fmt: skip
    try:
        started(child.pid)
        wait_until(lambda: _answers(url), child, f"the BMC at {url}", output)
        yield BmcAccess(url, USER, password, fingerprint)
    finally:
        child.kill()
        child.wait(STOP_SECONDS_MAX)


def _configuration(directory: Path, identity: str) -> str:
    """It serves this domain alone: libvirtd may have guests of others too."""
    return f"""
SUSHY_EMULATOR_LIBVIRT_URI = "{LIBVIRT}"
SUSHY_EMULATOR_BOOT_LOADER_MAP = {{"UEFI": {{"x86_64": "{FIRMWARE}"}}, "Legacy": {{"x86_64": None}}}}
SUSHY_EMULATOR_ALLOWED_INSTANCES = ["{identity}"]
SUSHY_EMULATOR_STORAGE_POOL = "{identity}"
SUSHY_EMULATOR_AUTH_FILE = "{directory}/htpasswd"
SUSHY_EMULATOR_STATE_DIR = "{directory}/emulator"
"""


def _answers(url: str) -> bool:
    try:
        return bool(asyncio.run(read_certificate(url)))
    except BmcProblem:
        return False
