"""A bare-metal machine as a domain of libvirt that is off, and the storage pool of its BMC's media."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from berth.cli.known_stack import StackProblem

LIBVIRT = "qemu:///system"
FIRMWARE = "/usr/share/OVMF/OVMF_CODE_4M.fd"
VARIABLES = "/usr/share/OVMF/OVMF_VARS_4M.fd"
MEMORY_MIB = 512
DISK = "disk.raw"
CONSOLE = "console"
_QEMU = " xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"
_UNDEFINE_NVRAM = 4


def connect() -> Any:
    """A connection to libvirtd. Raises `StackProblem` if there is none, or no firmware."""
    try:
        import libvirt
    except ImportError as error:
        raise StackProblem("libvirt-python is not installed: make demo DRIVER=redfish") from error
    if not Path(FIRMWARE).exists():
        raise StackProblem(f"{FIRMWARE} is missing: apt-get install --no-install-recommends ovmf")
    try:
        return libvirt.open(LIBVIRT)
    except libvirt.libvirtError as error:
        raise StackProblem(f"libvirtd does not answer: {error}; make demo DRIVER=redfish starts one") from error


def uefi_system(directory: Path) -> str:
    """Memory and UEFI firmware of a machine that keeps its variables in this folder, which this makes."""
    directory.mkdir()
    variables = directory / "variables.fd"
    shutil.copy(VARIABLES, variables)
    variables.chmod(0o666)
    return (
        f"<memory unit='MiB'>{MEMORY_MIB}</memory><os><type arch='x86_64' machine='q35'>hvm</type>"
        f"<loader readonly='yes' type='pflash'>{FIRMWARE}</loader><nvram>{variables}</nvram><boot dev='hd'/></os>"
    )


def console_devices(directory: Path) -> str:
    """A serial console that is written to a file of the folder, and a source of random numbers."""
    return (
        f"<serial type='file'><source path='{directory / CONSOLE}'/></serial>"
        "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>"
    )


def _made(make: Callable[[str], Any], description: str) -> Any:
    """What libvirt makes of the description. Raises `StackProblem`."""
    import libvirt

    try:
        return make(description)
    except libvirt.libvirtError as error:
        raise StackProblem(f"libvirt refuses the machine: {error}") from error


@contextmanager
def defined(
    directory: Path, system: str, devices: str, disk_bytes: int, arguments: Sequence[str] = ()
) -> Iterator[str]:
    """A domain that is off, and a pool for media, named as the domain's UUID, which this yields. `system`: memory and firmware;
    `devices`: more than one disk at `vda` with the serial `DISK1`; `arguments`: of QEMU, as they are."""
    connection = connect()
    identity, pool, disk = str(uuid.uuid4()), directory / "pool", directory / DISK
    pool.mkdir()
    with disk.open("wb") as empty:
        empty.truncate(disk_bytes)
    try:
        made = _made(
            connection.storagePoolCreateXML,
            f"<pool type='dir'><name>{identity}</name><target><path>{pool}</path></target></pool>",
        )
        try:
            with _domain(connection, identity, disk, system, devices, arguments):
                yield identity
        finally:
            made.destroy()
    finally:
        connection.close()


@contextmanager
def _domain(
    connection: Any, identity: str, disk: Path, system: str, devices: str, arguments: Sequence[str]
) -> Iterator[None]:
    given = "".join(f"<qemu:arg value='{argument}'/>" for argument in arguments)
    schema, commands = (_QEMU, f"<qemu:commandline>{given}</qemu:commandline>") if given else ("", "")
    domain = _made(
        connection.defineXML,
        f"<domain type='qemu'{schema}><name>bmc-{identity}</name><uuid>{identity}</uuid><vcpu>1</vcpu>{system}"
        "<features><acpi/></features>"
        "<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><disk type='file' device='disk'>"
        f"<driver name='qemu' type='raw'/><source file='{disk}'/><target dev='vda' bus='virtio'/><serial>DISK1</serial></disk>"
        f"{devices}</devices>{commands}</domain>",
    )
    try:
        yield
    finally:
        if domain.isActive():
            domain.destroy()
        domain.undefineFlags(_UNDEFINE_NVRAM)
