"""Inspects PCI functions, or resets one, and prints what it found.

`python -m node_agent.gpu_reset.functions look ROOT ADDRESS...`, or `... reset ROOT ADDRESS AGENT`. A separate process:
the kernel may wait for a device for ever, and that must not reach the agent.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from node_agent.burn_in.tether import tether
from node_agent.discovery.pci import DEVICES
from node_agent.discovery.reading import Gaps, Tree, printable
from node_agent.wire.fields import Exact, Truth, Whole
from node_agent.wire.topology import GPUS_MAX, NAME_MAX, Name, PciAddress, Text

VFIO_DRIVERS = ("vfio-pci", "nvgrace-gpu-vfio-pci")
METHOD_UNNAMED = "kernel"
"""Of kernels before 5.15, which do not name the method."""
_METHODS_MAX = 8
_OFF_THE_BUS = b"\xff\xff\xff\xff"


class Function(Exact):
    """A PCI function. `pci_id` was read from the device and is None if it does not answer; `users`: processes that have it open,
    None if the open files of some process cannot be read. `methods`: how the kernel can reset it, in its order."""

    address: PciAddress
    pci_id: Text | None = None
    driver: Name | None = None
    methods: Annotated[list[Name], Field(max_length=_METHODS_MAX)] = Field(default_factory=list)
    users: Whole | None = 0


class Look(Exact):
    """The functions that are there."""

    functions: Annotated[list[Function], Field(max_length=GPUS_MAX)]


class Reset(Exact):
    """What the kernel answered. `error` is None if it reset the function."""

    error: Text | None = None
    supported: Truth = True


def look(root: Path, addresses: Sequence[str]) -> Look:
    """The functions at these addresses, as far as they are there."""
    tree = Tree(root, Gaps())
    return Look(functions=[_function(tree, one) for one in addresses if tree.has(f"{DEVICES}/{one}")])


def reset(root: Path, address: str) -> Reset:
    """Let the kernel reset a function by the first of its methods."""
    try:
        descriptor = os.open(root / DEVICES / address / "reset", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
    except OSError as error:
        supported = error.errno not in (errno.ENOENT, errno.ENOTTY, errno.EOPNOTSUPP)
        return Reset(error=printable(error.strerror or str(error)) or "?", supported=supported)
    return Reset()


def _function(tree: Tree, address: str) -> Function:
    directory = f"{DEVICES}/{address}"
    driver = tree.link_name(f"{directory}/driver")
    return Function(
        address=address, pci_id=_pci_id(tree.root / directory / "config"), driver=driver,
        methods=_methods(tree, directory), users=_users(tree, directory) if driver in VFIO_DRIVERS else 0,
    )  # fmt: skip


def _pci_id(path: Path) -> str | None:
    """Vendor and device by the configuration space: the files `vendor` and `device` are copies that outlive the device."""
    try:
        with path.open("rb") as file:
            found = file.read(4)
    except OSError:
        return None
    if len(found) < len(_OFF_THE_BUS) or found == _OFF_THE_BUS:
        return None
    return f"{int.from_bytes(found[:2], 'little'):04x}:{int.from_bytes(found[2:], 'little'):04x}"


def _methods(tree: Tree, directory: str) -> list[str]:
    if not tree.has(f"{directory}/reset"):
        return []
    if not tree.has(f"{directory}/reset_method"):
        return [METHOD_UNNAMED]
    named = tree.line(f"{directory}/reset_method") or ""
    return [name[:NAME_MAX] for name in named.split()][:_METHODS_MAX]


def _users(tree: Tree, directory: str) -> int | None:
    """How many processes have the VFIO device open: by its group, or by the device's file of newer kernels."""
    group = tree.link_name(f"{directory}/iommu_group")
    files = {f"/dev/vfio/{group}"} if group is not None else set()
    files |= {f"/dev/vfio/devices/{name}" for name in tree.names(f"{directory}/vfio-dev") or ()}
    return open_files_of_processes(tree, files)


def open_files_of_processes(tree: Tree, files: Collection[str]) -> int | None:
    """How many processes have one of these files open; None if the open files of some process cannot be read."""
    found = 0
    try:
        for process in (tree.root / "proc").iterdir():
            if process.name.isdecimal():
                found += any(target in files for target in _open_files(process / "fd"))
    except OSError:
        return None
    return found


def _open_files(directory: Path) -> Iterator[str]:
    with suppress(FileNotFoundError, ProcessLookupError):  # the process ended meanwhile
        for link in directory.iterdir():
            with suppress(FileNotFoundError):
                yield str(link.readlink())


def main(arguments: Sequence[str]) -> None:
    """The process."""
    verb, root, *more = arguments
    if verb == "look":
        sys.stdout.write(look(Path(root), more).model_dump_json())
        return
    address, agent = more
    tether(int(agent))
    sys.stdout.write(reset(Path(root), address).model_dump_json())


if __name__ == "__main__":
    main(sys.argv[1:])
