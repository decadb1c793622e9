"""Checks of what the guests of this host are given: processors, and huge pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from node_agent.checks.finding import Code, Finding
from node_agent.checks.memory import Pool, check_huge_pages, read_pools
from node_agent.discovery.reading import Gaps, Tree
from node_agent.drivers.libvirt.host_slots import HostSlots, read_host_slots
from node_agent.drivers.libvirt.placement import Pinning
from node_agent.drivers.libvirt.placing import PlacementSettings, pinning_of
from node_agent.settings import Settings
from node_agent.wire.processors import parse_processors

MOUNTS = "proc/mounts"
_PROCESSORS, _NODE_MEMORY, _PAGES = "processors", "numa memory", "huge pages"


def check_resources(root: Path, wanted: PlacementSettings) -> list[Finding]:
    """Check processors and huge pages of the host for guests under these settings."""
    tree, host = Tree(root, Gaps()), read_host_slots(root, wanted.slots)
    pinning = pinning_of(wanted, host)
    pinned = [judge_pinning(pinning, host), *judge_binding(pinning)]
    if not wanted.huge_page_kib:
        return [*pinned, check_huge_pages(tree)]
    mounts = (tree.raw(MOUNTS) or b"").decode(errors="replace")
    pools = {pool.page_kib: pool for pool in read_pools(tree)}
    slots = len(host.addresses) or wanted.slots
    return [
        *pinned,
        judge_guest_pages(wanted, pools.get(wanted.huge_page_kib), slots, is_mounted=" hugetlbfs " in mounts),
    ]


def judge_pinning(pinning: Pinning, host: HostSlots) -> Finding:
    """The finding for the division of the host's processors."""
    if pinning.blocks is not None:
        return Finding(_PROCESSORS, f"each of {len(pinning.blocks)} slots has its own {len(pinning.blocks[0][1])}")
    if not host.slot_nodes:
        remedy = "set BERTH_LIBVIRT_SLOTS to the node's number of slots to pin guests"
        return Finding(_PROCESSORS, f"guests are not pinned: {pinning.why}", Code.SLOTS_UNKNOWN, remedy)
    remedy = "lower BERTH_GUEST_PROCESSORS or shorten BERTH_LIBVIRT_RESERVED_PROCESSORS"
    return Finding(_PROCESSORS, f"guests are not pinned: {pinning.why}", Code.PROCESSORS_TOO_FEW, remedy)


def judge_binding(pinning: Pinning) -> list[Finding]:
    """The finding for the memory of NUMA nodes; none on a host that has one, or whose guests are not pinned."""
    if pinning.is_bound:
        return [Finding(_NODE_MEMORY, "each NUMA node has enough for its slots")]
    if not pinning.why_unbound:
        return []
    remedy = "lower BERTH_GUEST_MEMORY_BYTES, or put memory beside each processor"
    found = f"guests are not bound to near memory: {pinning.why_unbound}"
    return [Finding(_NODE_MEMORY, found, Code.NODE_MEMORY_TOO_SMALL, remedy)]


def judge_guest_pages(wanted: PlacementSettings, pool: Pool | None, slots: int, *, is_mounted: bool) -> Finding:
    """The finding for the pool of the size that guests use. `slots`: how many the host has; 0: not known."""
    kib = wanted.huge_page_kib
    each = wanted.memory_bytes // (kib * 1024)
    needed = max(slots, 1) * each
    setting = f"hugepagesz={kib // 1024}M hugepages={needed}"
    remedy = f"boot Linux with {setting}, or write {needed} to /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"
    if pool is None or not pool.reserved:
        return Finding(_PAGES, f"none of {kib} KiB are reserved, and guests use them", Code.HUGE_PAGES_ABSENT, remedy)
    if not is_mounted:
        remedy = "systemctl enable --now dev-hugepages.mount, and restart libvirtd"
        return Finding(_PAGES, "no hugetlbfs is mounted: libvirt finds no huge pages", Code.HUGETLBFS_ABSENT, remedy)
    found = f"{pool.reserved} of {kib} KiB are reserved, {pool.free} of them free; a slot needs {each}"
    if pool.reserved < needed:
        return Finding(_PAGES, f"{found}, all slots {needed}", Code.HUGE_PAGES_TOO_FEW, remedy)
    return Finding(_PAGES, found)


def wanted_by(environment: Mapping[str, str]) -> PlacementSettings:
    """The settings that the environment names; what the agent would refuse counts as not set."""
    try:
        reserved = environment.get("BERTH_LIBVIRT_RESERVED_PROCESSORS")
        kept = None if reserved is None else parse_processors(reserved)
    except ValueError:
        kept = None
    return PlacementSettings(
        processors=_number(environment, "guest_processors"),
        memory_bytes=_number(environment, "guest_memory_bytes"),
        slots=_number(environment, "libvirt_slots"),
        reserved=kept,
        huge_page_kib=_number(environment, "libvirt_huge_page_kib"),
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(f"BERTH_{name.upper()}", "")
    return int(text) if text.isdecimal() and len(text) < 16 else int(Settings.model_fields[name].default)
