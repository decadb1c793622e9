"""Errors that NVIDIA's driver wrote into the kernel's log (XIDs), from its buffer: those since the start of the machine, unless
later messages have overwritten them."""

from __future__ import annotations

import os
import re
from collections import Counter

from node_agent.discovery.reading import INDEX_MAX, Tree, pci_address
from node_agent.wire.health import XIDS_MAX, Xid

LOG_BYTES_MAX = 16 * 2**20
_LOG = "dev/kmsg"
_RECORD_BYTES = 8192
_OVERWRITTEN_MAX = 1000
# "4,1234,98765,-;NVRM: Xid (PCI:0000:0f:00): 79, pid=1, GPU has fallen off the bus."
_XID = re.compile(rb"^([0-9]{1,3}),[^;\n]*;NVRM: Xid \(PCI:([0-9a-fA-F:.]{7,20})\): ([0-9]{1,5})\b", re.M)
_KERNEL_PRIORITIES = 8


def xids(tree: Tree) -> dict[str, list[Xid]] | None:
    """The errors of each GPU by its address, the most frequent first; None if the log cannot be read."""
    log = _read(tree)
    if log is None:
        return None
    counted: dict[str, Counter[int]] = {}
    for priority, bus, code in _XID.findall(log):
        text = bus.decode()
        address = pci_address(text if "." in text else f"{text}.0")
        # A larger priority has a facility: a process wrote the line.
        if address is None or int(priority) >= _KERNEL_PRIORITIES or int(code) > INDEX_MAX:
            continue
        counted.setdefault(address, Counter())[int(code)] += 1
    return {address: _listed(tree, address, codes) for address, codes in counted.items()}


def _listed(tree: Tree, address: str, codes: Counter[int]) -> list[Xid]:
    if len(codes) > XIDS_MAX:
        tree.gaps.add(address, f"{len(codes)} kinds of XID were found, the {XIDS_MAX} most frequent are listed")
    found = sorted(codes.items(), key=lambda item: (-item[1], item[0]))[:XIDS_MAX]
    return [Xid(code=code, count=min(count, INDEX_MAX)) for code, count in found]


def _read(tree: Tree) -> bytes | None:
    try:
        descriptor = os.open(tree.root / _LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        tree.gaps.add("kernel log", error.strerror or type(error).__name__)
        return None
    log, overwritten = bytearray(), 0
    try:
        while len(log) <= LOG_BYTES_MAX:
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BrokenPipeError:  # the buffer has overwritten the next record
                overwritten += 1
                if overwritten > _OVERWRITTEN_MAX:
                    break
                continue
            except BlockingIOError:
                break
            if not record:
                break
            log += record
    except OSError as error:
        tree.gaps.add("kernel log", error.strerror or type(error).__name__)
        return None
    finally:
        os.close(descriptor)
    return bytes(log)
