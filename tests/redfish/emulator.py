"""Machines and BMCs of the run's libvirtd; a test that needs what is missing is skipped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from berth.cli.known_stack import StackProblem
from berth.local.machines import bmcs, domains
from node_agent.redfish.contract import BmcAccess
from tests.redfish.tools import TOOLS, tool


@contextlib.contextmanager
def defined(
    directory: Path, system: str, devices: str, disk_bytes: int, arguments: Sequence[str] = ()
) -> Iterator[str]:
    """A domain as of `domains.defined`, whose directory of the test the user of QEMU may enter."""
    try:
        domains.connect().close()
    except StackProblem as problem:
        pytest.skip(str(problem))
    for parent in (directory, *directory.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)
    with domains.defined(directory, system, devices, disk_bytes, arguments) as identity:
        yield identity


@contextlib.contextmanager
def emulated(directory: Path, identity: str) -> Iterator[BmcAccess]:
    """The emulator in front of the domain."""
    tool("sushy-emulator")
    with bmcs.emulated(directory, identity, TOOLS) as access:
        yield access
