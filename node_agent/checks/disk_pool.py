"""Checks the thin pool of LVM that holds the disks of guests."""

from __future__ import annotations

import re
from collections.abc import Mapping

from node_agent.checks.finding import Code, Finding
from node_agent.drivers.libvirt.disk_pool.contents import NoThinPool, PoolAbsent, PoolName, PoolState, look
from node_agent.drivers.libvirt.disk_pool.lvm import PoolError, ProgramMissing, find_program
from node_agent.settings import DISK_POOL, OVERCOMMIT_MAX, OVERCOMMIT_MIN, Settings

CHECK_SECONDS_MAX = 20.0
PROGRAMS = ("lvs", "lvcreate", "lvchange", "lvremove", "dmsetup", "thin_check")
_NAME, _SPACE = "disk pool", "disk pool space"


def check_disk_pool(pool: str | None, overcommit: float, seconds_max: float = CHECK_SECONDS_MAX) -> list[Finding]:
    """Check the pool that the settings name; nothing where they name none."""
    if pool is None:
        return []
    if re.fullmatch(DISK_POOL, pool) is None:
        remedy = "set it to the name of a volume group and of a thin pool in it, as vg0/guests"
        return [Finding(_NAME, f"{pool[:100]!r} is not <volume group>/<thin pool>", Code.DISK_POOL_ABSENT, remedy)]
    name = PoolName.of(pool)
    try:
        for program in PROGRAMS:
            find_program(program)
        state = look(name, seconds_max).state
    except ProgramMissing as error:
        remedy = "apt-get install --no-install-recommends lvm2 thin-provisioning-tools"
        return [Finding(_NAME, str(error), Code.DISK_POOL_PROGRAM_MISSING, remedy)]
    except PoolAbsent as error:
        remedy = f"lvcreate --type thin-pool --zero y --size SIZE --name {name.pool} {name.group}, and see vgs and pvs"
        return [Finding(_NAME, str(error), Code.DISK_POOL_ABSENT, remedy)]
    except NoThinPool as error:
        return [Finding(_NAME, str(error), Code.DISK_POOL_NOT_THIN, "name a thin pool: lvs -o lv_full_name,lv_layout")]
    except PoolError as error:
        remedy = f"run lvs {name.group} as the agent's user; the unit needs the drop-in berth-agent-lvm.conf"
        return [Finding(_NAME, str(error), Code.DISK_POOL_SILENT, remedy)]
    return judge_disk_pool(name, state, overcommit)


def judge_disk_pool(name: PoolName, state: PoolState, overcommit: float) -> list[Finding]:
    """The findings for a pool that is there: whether guests may have disks in it, and how full it is."""
    if not state.zeroes:
        remedy = f"lvchange --zero y {name}: a new disk would show what another guest left"
        return [
            Finding(_NAME, f"{name} does not zero the blocks that it gives out", Code.DISK_POOL_NOT_ZEROING, remedy)
        ]
    if state.problem:
        remedy = f"release or move its guests, then lvconvert --repair {name}; see lvmthin(7)"
        return [Finding(_NAME, f"{name}: {state.problem}", Code.DISK_POOL_DAMAGED, remedy)]
    usable = Finding(_NAME, f"{name} is a thin pool that zeroes, of {state.size_bytes} bytes")
    most = int(state.size_bytes * overcommit)
    found = f"volumes may have {most} bytes together and have {state.virtual_bytes}; {_used(state)}"
    if why := state.why_full():
        remedy = f"lvextend --size +SIZE {name}, or --poolmetadatasize +SIZE for metadata"
        return [usable, Finding(_SPACE, f"{why}; {found}", Code.DISK_POOL_FULL, remedy)]
    if overcommit > 1:
        remedy = (
            "watch berth_agent_disk_pool_bytes, and have LVM extend it: thin_pool_autoextend_threshold of lvm.conf(5)"
        )
        return [usable, Finding(_SPACE, f"guests wait when it is full; {found}", Code.DISK_POOL_OVERCOMMITTED, remedy)]
    return [usable, Finding(_SPACE, found)]


def disk_pool_by(environment: Mapping[str, str]) -> tuple[str | None, float]:
    """Pool and overcommit that the environment names; what the agent would refuse of the second counts as not set."""
    default: float = Settings.model_fields["libvirt_disk_pool_overcommit"].default
    try:
        overcommit = float(environment.get("BERTH_LIBVIRT_DISK_POOL_OVERCOMMIT", default))
    except ValueError:
        overcommit = default
    is_taken = OVERCOMMIT_MIN <= overcommit <= OVERCOMMIT_MAX  # also of nan
    return environment.get("BERTH_LIBVIRT_DISK_POOL") or None, overcommit if is_taken else default


def _used(state: PoolState) -> str:
    shares = (("data", state.data_percent), ("metadata", state.metadata_percent))
    return ", ".join(f"{what} {'unknown' if percent is None else f'{percent:g} % used'}" for what, percent in shares)
