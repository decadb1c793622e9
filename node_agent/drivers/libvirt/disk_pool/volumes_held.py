"""What the pool says of this node: allocations that have a volume, also without any file, and whether the agent may start."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from node_agent.drivers.contract import GuestState, Held
from node_agent.drivers.libvirt.disk_pool.lvm import PoolError
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool
from node_agent.drivers.libvirt.records import GuestDirectory
from node_agent.problems import CannotStart

log = structlog.get_logger("node_agent.libvirt")


def held_in(pool: DiskPool | None) -> list[Held]:
    """Each allocation of this agent that has a volume. Raises PoolError."""
    if pool is None:
        return []
    contents = pool.recent()
    if pool.notes_full(why := contents.state.problem or contents.state.why_full()):
        log.warning(
            "disk_pool_full", pool=str(pool.name), why=why, data_percent=contents.state.data_percent,
            metadata_percent=contents.state.metadata_percent,
            remedy="extend it with lvextend; guests that wait go on by their restart policy, or by `berth alloc start`",
        )  # fmt: skip
    return [
        Held(volume.allocation_id, volume.slots, volume.fence, GuestState.UNKNOWN)
        for volume in pool.own(contents)
        if volume.allocation_id is not None
    ]


def require_pool(pool: DiskPool | None, directories: Iterable[GuestDirectory]) -> None:
    """Raise CannotStart unless LVM answers, and every guest's volume is in this pool, as far as it is there."""
    named = [volume for directory in directories if (volume := directory.volume) is not None]
    if pool is None:
        if named:
            raise CannotStart(
                f"{len(named)} guests of this node have a volume, as {named[0]}; set BERTH_LIBVIRT_DISK_POOL until they are"
                " released"
            )
        return
    others = [volume for volume in named if volume.partition("/")[0] != pool.name.group]
    if others:
        raise CannotStart(
            f"{len(others)} guests of this node have a volume in another volume group than {pool.name}, as {others[0]}; set"
            " BERTH_LIBVIRT_DISK_POOL back until they are released"
        )
    try:
        contents = pool.look()
    except PoolError as error:
        raise CannotStart(f"the thin pool {pool.name}: {error}; see python -m node_agent --check") from error
    wanted = {volume.partition("/")[2] for volume in named} | {volume.name for volume in pool.own(contents)}
    found = [contents.volumes[name] for name in sorted(wanted & contents.volumes.keys())]
    if elsewhere := [volume for volume in found if volume.pool != pool.name.pool]:
        raise CannotStart(f"the disks of {len(elsewhere)} guests of this node: {pool.why_elsewhere(elsewhere[0])}")
