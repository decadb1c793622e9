"""Binds a PCI function to vfio-pci, or gives it back to the host's driver, and prints what it found.

`python -m node_agent.drivers.libvirt.vfio.binding take|give ROOT ADDRESS AGENT`. A separate process that ends with the agent:
the kernel may wait for a device for ever, and an agent that was killed has no effect any more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from node_agent.burn_in.tether import tether
from node_agent.discovery.pci import DEVICES
from node_agent.discovery.reading import Gaps, Tree, printable
from node_agent.drivers.libvirt.vfio.judging import DRIVER
from node_agent.wire.fields import Exact, Truth
from node_agent.wire.topology import Name, Text

PROBE = "sys/bus/pci/drivers_probe"
SETTLE_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.02
_CLOSED = (1, 13, 30)  # EPERM, EACCES, EROFS


class Change(Exact):
    """The driver afterwards. `error` is None if the kernel took every write; `is_closed`: it may not write there."""

    driver: Name | None = None
    error: Text | None = None
    is_closed: Truth = False


def take(root: Path, address: str) -> Change:
    """Bind to vfio-pci, by the override of this function alone: an id would capture every device of its kind."""
    return _changed(root, address, DRIVER)


def give(root: Path, address: str) -> Change:
    """Unbind from vfio-pci, and let the kernel find the driver that the function had."""
    return _changed(root, address, None)


def driver_of(root: Path, address: str) -> str | None:
    """The driver that holds the function."""
    return Tree(root, Gaps()).link_name(f"{DEVICES}/{address}/driver")


def _changed(root: Path, address: str, wanted: str | None) -> Change:
    device = root / DEVICES / address
    try:
        # A newline clears it; the kernel then shows "(null)".
        _write(device / "driver_override", wanted or "\n")
        before = driver_of(root, address)
        is_leaving = before is not None and (before != DRIVER if wanted else before == DRIVER)
        if is_leaving:
            _write(device / "driver" / "unbind", address)
            _settle(root, address, lambda now: now != before)
        if driver_of(root, address) is None:
            _write(root / PROBE, address)
            _settle(root, address, lambda now: now is not None)
    except OSError as error:
        shown = printable(f"{error.filename or address}: {error.strerror}")[-64:]
        return Change(driver=driver_of(root, address), error=shown, is_closed=error.errno in _CLOSED)
    return Change(driver=driver_of(root, address))


def _settle(root: Path, address: str, done: Callable[[str | None], bool]) -> None:
    """Wait until the driver is as expected, or not: what is there at the end is the answer."""
    until = time.monotonic() + SETTLE_SECONDS_MAX
    while not done(driver_of(root, address)) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def main(verb: str, root: str, address: str, agent: str) -> None:
    """The process."""
    tether(int(agent))
    sys.stdout.write((take if verb == "take" else give)(Path(root), address).model_dump_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
