"""Reports huge pages: what is reserved in them is not there for guests, which use ordinary pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from node_agent.checks.finding import Code, Finding
from node_agent.discovery.reading import Tree

DIRECTORY = "sys/kernel/mm/hugepages"
PAGES_MAX = 2**40
_SIZE = re.compile(r"^hugepages-([1-9][0-9]{0,9})kB$")
_NAME = "huge pages"


@dataclass(frozen=True)
class Pool:
    """Huge pages of one size: how many are reserved, and how many of those are free."""

    page_kib: int
    reserved: int
    free: int


def check_huge_pages(tree: Tree) -> Finding:
    """Report the pools of the host."""
    return judge_huge_pages(read_pools(tree))


def read_pools(tree: Tree) -> list[Pool]:
    """The pools that the kernel has."""
    pools = []
    for name in tree.names(DIRECTORY) or ():
        size = _SIZE.match(name)
        reserved, free = (
            tree.number(f"{DIRECTORY}/{name}/{file}", PAGES_MAX) for file in ("nr_hugepages", "free_hugepages")
        )
        if size and reserved is not None and free is not None:
            pools.append(Pool(int(size[1]), reserved, free))
    return pools


def judge_huge_pages(pools: Sequence[Pool]) -> Finding:
    """The finding for the pools that the kernel has."""
    used = sorted((pool for pool in pools if pool.reserved), key=lambda pool: pool.page_kib)
    if not used:
        return Finding(_NAME, "none are reserved; guests use ordinary pages")
    counts = ", ".join(f"{pool.reserved} of {pool.page_kib} KiB, {pool.free} of them free" for pool in used)
    kept = sum(pool.reserved * pool.page_kib for pool in used) * 1024
    remedy = "sysctl -w vm.nr_hugepages=0, unless another program needs them"
    found = f"{kept} bytes are reserved ({counts}); guests use ordinary pages"
    return Finding(_NAME, found, Code.HUGE_PAGES_RESERVED, remedy)
