"""sushy-tools' emulator of BMCs in front of a domain of the run's libvirtd."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from berth.local.servers import free_port
from node_agent.redfish.contract import BmcAccess
from node_agent.redfish.problems import BmcProblem
from node_agent.redfish.tls import read_certificate
from tests.redfish.running import run
from tests.redfish.tools import tool
from tests.support.bmc.server import certificate
from tests.support.waiting import wait_for

FIRMWARE = "/usr/share/OVMF/OVMF_CODE_4M.fd"
VARIABLES = "/usr/share/OVMF/OVMF_VARS_4M.fd"
CONFIGURATION = f"""
SUSHY_EMULATOR_LIBVIRT_URI = "qemu:///system"
SUSHY_EMULATOR_BOOT_LOADER_MAP = {{"UEFI": {{"x86_64": "{FIRMWARE}"}}, "Legacy": {{"x86_64": None}}}}
"""


def libvirt_connection() -> Any:
    """The libvirtd of the run; the test is skipped without it, or without firmware."""
    libvirt = pytest.importorskip("libvirt")
    try:
        connection = libvirt.open("qemu:///system")
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd: {error}")
    if not Path(FIRMWARE).exists():
        pytest.skip(f"{FIRMWARE} is missing: apt-get install ovmf")
    return connection


_QEMU = " xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"


@contextlib.contextmanager
def defined(
    directory: Path, system: str, devices: str, disk_bytes: int, arguments: Sequence[str] = ()
) -> Iterator[str]:
    """A domain that is off, and a pool for media, named as the domain's UUID, which this yields. `system`: memory and firmware;
    `devices`: more than one disk at `vda` with the serial `DISK1`; `arguments`: of QEMU, as they are."""
    connection = libvirt_connection()
    identity, pool, disk = str(uuid.uuid4()), directory / "pool", directory / "disk.raw"
    pool.mkdir()
    for parent in (directory, *directory.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)
    with disk.open("wb") as empty:
        empty.truncate(disk_bytes)
    made = connection.storagePoolCreateXML(
        f"<pool type='dir'><name>{identity}</name><target><path>{pool}</path></target></pool>"
    )
    given = "".join(f"<qemu:arg value='{argument}'/>" for argument in arguments)
    schema, commands = (_QEMU, f"<qemu:commandline>{given}</qemu:commandline>") if given else ("", "")
    domain = connection.defineXML(
        f"<domain type='qemu'{schema}><name>bmc-{identity}</name><uuid>{identity}</uuid><vcpu>1</vcpu>{system}"
        "<features><acpi/></features>"
        "<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><disk type='file' device='disk'>"
        f"<driver name='qemu' type='raw'/><source file='{disk}'/><target dev='vda' bus='virtio'/><serial>DISK1</serial></disk>"
        f"{devices}</devices>{commands}</domain>"
    )
    try:
        yield identity
    finally:
        if domain.isActive():
            domain.destroy()
        domain.undefineFlags(4)  # VIR_DOMAIN_UNDEFINE_NVRAM
        made.destroy()
        connection.close()


@contextlib.contextmanager
def emulated(directory: Path, identity: str) -> Iterator[BmcAccess]:
    """The emulator in front of the domain."""
    hashing = "import bcrypt; print(bcrypt.hashpw(b'first-secret', bcrypt.gensalt(4)).decode())"
    hashed = subprocess.run(
        [tool("python"), "-c", hashing], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    (directory / "htpasswd").write_text(f"berth:{hashed.strip()}\n")
    pem, key, fingerprint = certificate(1)
    (directory / "certificate.pem").write_bytes(pem)
    (directory / "key.pem").write_bytes(key)
    (directory / "emulator").mkdir()
    # The libvirtd of the run has guests of other tests too.
    own = f'SUSHY_EMULATOR_ALLOWED_INSTANCES = ["{identity}"]\nSUSHY_EMULATOR_STORAGE_POOL = "{identity}"\n'
    paths = f'SUSHY_EMULATOR_AUTH_FILE = "{directory}/htpasswd"\nSUSHY_EMULATOR_STATE_DIR = "{directory}/emulator"\n'
    (directory / "emulator.conf").write_text(CONFIGURATION + own + paths)
    port = free_port()
    command = [tool("sushy-emulator"), "--config", str(directory / "emulator.conf"), "-i", "127.0.0.1", "-p", str(port)]
    command += ["--ssl-certificate", str(directory / "certificate.pem"), "--ssl-key", str(directory / "key.pem")]
    url = f"https://127.0.0.1:{port}"
    with (directory / "emulator.log").open("w") as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(directory)}
        )
    try:
        wait_for(lambda: _answers(url, child), "the emulator's certificate", 30)
        yield BmcAccess(url, "berth", "first-secret", fingerprint)
    finally:
        child.kill()
        child.wait()


def _answers(url: str, child: subprocess.Popen[bytes]) -> bool:
    assert child.poll() is None, "the emulator ended"
    try:
        return bool(run(read_certificate(url)))
    except BmcProblem:
        return False
