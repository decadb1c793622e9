"""Huge pages of the host: whether enough are free for a guest, before it is defined."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from node_agent.discovery.reading import Gaps, Tree
from node_agent.drivers.libvirt.placement import GuestPlacement

OF_HOST = "sys/kernel/mm/hugepages"
OF_NODE = "sys/devices/system/node"
PAGES_MAX = 2**40


class HugePagesShort(Exception):
    """The host has too few free huge pages for the guest. The text names the node, and what to do."""


def require_pages(root: Path, page_kib: int, memory_bytes: int, placement: GuestPlacement | None) -> None:
    """Raise HugePagesShort unless so many pages are free: on each NUMA node that the guest is bound to, otherwise in all."""
    tree = Tree(root, Gaps())
    for node, wanted_bytes in _wanted(memory_bytes, placement).items():
        pool = OF_HOST if node is None else f"{OF_NODE}/node{node}/hugepages"
        free = tree.number(f"{pool}/hugepages-{page_kib}kB/free_hugepages", PAGES_MAX) or 0
        wanted = -(-wanted_bytes // (page_kib * 1024))
        if free < wanted:
            where = "the host" if node is None else f"NUMA node {node}"
            raise HugePagesShort(
                f"{where} has {free} free huge pages of {page_kib} KiB, and the guest needs {wanted}; "
                f"write a larger number to /{pool}/hugepages-{page_kib}kB/nr_hugepages, best at boot"
            )


def _wanted(memory_bytes: int, placement: GuestPlacement | None) -> Mapping[int | None, int]:
    if placement is None or not placement.is_bound:
        return {None: memory_bytes}
    return {cell.numa_node: cell.memory_bytes for cell in placement.cells}
