"""What LVM says: its reports read, its programs bounded, and volumes found, made and refused by them. Without LVM."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from node_agent.drivers.libvirt.disk_pool import pool as pool_module
from node_agent.drivers.libvirt.disk_pool.contents import (
    COLUMNS,
    NoThinPool,
    PoolAbsent,
    PoolName,
    contents_of,
    look,
    owner_tag,
    volume_name,
)
from node_agent.drivers.libvirt.disk_pool.lvm import PoolError, ProgramMissing, ProgramSilent, read_report, run
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool, PoolSettings, PoolShort, VolumeInUse
from node_agent.drivers.libvirt.disk_pool.zeroing import mapped_of
from tests.libvirt_driver.disk_pool.fake_lvm import GIB, POOL, FakeLvm, report_of, row

NAME = PoolName("vg0", "disks")
ALLOCATIONS = Path("/var/lib/berth-guests/allocations")
ALLOCATION = uuid.UUID(int=7)


def volume(allocation_id: uuid.UUID = ALLOCATION, size: int = GIB, **changes: str) -> dict[str, str]:
    """The row of a guest's volume."""
    tags = f"berth.fence=9,berth.made,{owner_tag(ALLOCATIONS)},berth.slots=0+3"
    values = {"lv_name": volume_name(allocation_id), "lv_size": str(size), "pool_lv": "disks", "lv_tags": tags}
    return row(**{**values, "lv_active": "active", "lv_layout": "thin,sparse", **changes})


def pool_of(overcommit: float = 1.0, seconds_max: float = 5.0) -> DiskPool:
    """A pool as an agent has it."""
    return DiskPool(PoolSettings(NAME, overcommit, seconds_max), ALLOCATIONS)


def test_a_report_says_the_pool_and_its_volumes() -> None:
    rows = [row(**POOL), volume(), volume(uuid.UUID(int=8), lv_tags=""), row(lv_name="root", lv_size="5")]
    contents = contents_of(NAME, rows)
    assert (contents.state.size_bytes, contents.state.virtual_bytes, contents.state.zeroes) == (
        100 * GIB,
        2 * GIB,
        True,
    )
    assert contents.state.space.data_used == 0.125
    assert sorted(contents.volumes) == [volume_name(ALLOCATION), volume_name(uuid.UUID(int=8)), "root"]
    found = contents.volumes[volume_name(ALLOCATION)]
    assert (found.allocation_id, found.fence, found.slots, found.is_made) == (ALLOCATION, 9, (0, 3), True)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"lv_name": "other"}, PoolAbsent, "has no volume disks"),
        ({"lv_layout": "linear"}, NoThinPool, "is no thin pool, but linear"),
        ({"lv_layout": "thin,sparse"}, NoThinPool, "is no thin pool"),
        ({"lv_size": "many"}, PoolError, "LVM says lv_size=many"),
        ({"lv_size": ""}, PoolError, "does not say how large"),
    ],
)
def test_a_report_without_such_a_pool_is_refused(changes: dict[str, str], error: type[PoolError], words: str) -> None:
    with pytest.raises(error, match=words):
        contents_of(NAME, [row(**{**POOL, **changes})])


@pytest.mark.parametrize("text", ["", "[]", "{", '{"report": 3}', '{"report": [{"lv": [{"lv_name": "x"}]}]}', "null"])
def test_what_is_no_report_is_an_error(text: str) -> None:
    with pytest.raises(PoolError, match="cannot be read"):
        read_report(text, "lv", COLUMNS)


def test_a_pool_that_is_not_active_says_no_percents() -> None:
    state = contents_of(NAME, [row(**{**POOL, "data_percent": "", "metadata_percent": ""})]).state
    assert (state.space.data_used, state.space.metadata_used, state.why_full()) == (None, None, "")


def test_a_name_like_a_volume_of_berth_belongs_to_no_allocation() -> None:
    contents = contents_of(NAME, [row(**POOL), row(lv_name="berth-x", lv_size="5", pool_lv="disks")])
    assert contents.volumes["berth-x"].allocation_id is None


def test_a_volume_group_that_is_absent(lvm: FakeLvm) -> None:
    lvm.program(
        "lvs", "echo '  Volume group \"vg0\" not found' >&2; echo '  Cannot process volume group vg0' >&2; exit 5"
    )
    with pytest.raises(PoolAbsent, match="there is no volume group vg0"):
        look(NAME, 5)


def test_a_program_that_does_not_end_is_left_after_its_time_and_never_killed(lvm: FakeLvm, tmp_path: Path) -> None:
    lvm.program("lvs", f"trap 'echo ended >{tmp_path}/ended; exit 1' TERM; sleep 60 & wait")
    with pytest.raises(ProgramSilent, match=r"lvs did not end within 0\.5 s"):
        run("lvs", seconds_max=0.5)
    assert (tmp_path / "ended").read_text() == "ended\n"


def test_a_program_that_fails_says_why_and_one_that_is_missing_too(
    lvm: FakeLvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    lvm.program("lvchange", "echo '  WARNING: Running as a non-root user. x' >&2; echo '  no luck' >&2; exit 5")
    with pytest.raises(PoolError, match=r"lvchange: no luck$"):
        run("lvchange")
    monkeypatch.setattr("shutil.which", lambda *_arguments, **_options: None)
    with pytest.raises(ProgramMissing, match="lvs is not installed"):
        run("lvs")


@pytest.mark.parametrize(
    ("said", "mapped"),
    [
        ("0 196608 thin 6144 6143", (6144 * 512, 6144 * 512)),
        ("0 196608 thin 0 -", (0, 0)),
        ("0 8 thin 1 7", (512, 4096)),
    ],
)
def test_what_the_kernel_says_a_volume_maps(lvm: FakeLvm, said: str, mapped: tuple[int, int]) -> None:
    lvm.program("dmsetup", f"echo '{said}'")
    assert mapped_of(Path("/dev/vg0/x"), 5) == mapped


@pytest.mark.parametrize("said", ["", "0 8 linear 8:0 0", "0 8 thin Fail", "0 8 thin x y"])
def test_a_volume_of_which_the_kernel_says_nothing_is_not_wiped(lvm: FakeLvm, said: str) -> None:
    lvm.program("dmsetup", f"echo '{said}'")
    with pytest.raises(PoolError, match="does not say what /dev/vg0/x maps"):
        mapped_of(Path("/dev/vg0/x"), 5)


@pytest.mark.parametrize(
    ("changes", "overcommit", "words"),
    [
        ({}, 0.5, r"may have 53687091200 together and have 1073741824.*BERTH_LIBVIRT_DISK_POOL_OVERCOMMIT"),
        ({"data_percent": "95.00"}, 9.0, "95 % of its data are used"),
        ({"metadata_percent": "90.10"}, 9.0, "90.1 % of its metadata are used"),
        ({"lv_health_status": "failed"}, 9.0, "its health is failed"),
        ({"lv_check_needed": "check needed"}, 9.0, "its metadata need a check"),
    ],
    ids=["overcommit", "data", "metadata", "health", "check"],
)
def test_a_disk_without_room_is_refused_before_anything_is_made(
    lvm: FakeLvm, changes: dict[str, str], overcommit: float, words: str
) -> None:
    lvm.pool(volume(), **changes)
    with pytest.raises(PoolShort, match=words):
        pool_of(overcommit).create(uuid.UUID(int=8), 1, [0], 50 * GIB)
    assert lvm.calls("lvcreate") == []


def test_the_last_byte_within_the_bound_is_given(lvm: FakeLvm) -> None:
    lvm.pool(volume())
    with pytest.raises(PoolError, match="/dev/vg0/berth-"):  # there is no device: no LVM made it
        pool_of().create(uuid.UUID(int=8), 1, [3, 0], 99 * GIB)
    (call,) = lvm.calls("lvcreate")
    assert "--virtualsize 106300440576b" in call
    assert "--addtag berth.slots=0+3" in call
    with pytest.raises(PoolShort):
        pool_of().create(uuid.UUID(int=8), 1, [0], 99 * GIB + 1)


def test_of_two_agents_that_make_volumes_at_once_none_exceeds_the_bound(lvm: FakeLvm) -> None:
    lvm.pool(volume())
    other, new = volume(uuid.UUID(int=9), 90 * GIB), volume(uuid.UUID(int=8), 20 * GIB)
    lvm.after("lvcreate", volume(), other, new)
    lvm.after("lvremove", volume(), other)
    with pytest.raises(PoolShort, match="all together have 119185342464 bytes of 107374182400"):
        pool_of().create(uuid.UUID(int=8), 1, [0], 20 * GIB)
    (call,) = lvm.calls("lvremove")
    assert call.endswith(f"vg0/{volume_name(uuid.UUID(int=8))}")


def test_what_was_promised_is_given_also_when_the_pool_is_nearly_full(lvm: FakeLvm) -> None:
    filled = volume(size=96 * GIB)
    lvm.pool(filled, data_percent="96.01")
    with pytest.raises(PoolError, match="/dev/vg0/berth-"):  # there is no device: no LVM made it
        pool_of().create(uuid.UUID(int=8), 1, [0], 4 * GIB)
    assert pool_of().why_full() == ""
    with pytest.raises(PoolShort, match=r"96.01 % of its data are used"):
        pool_of(2.0).create(uuid.UUID(int=8), 1, [0], 4 * GIB + 1)
    lvm.pool(filled, data_percent="96.03")  # of a device that LVM does not know
    with pytest.raises(PoolShort, match=r"96.03 % of its data are used"):
        pool_of().create(uuid.UUID(int=8), 1, [0], 4 * GIB)
    lvm.pool(filled, data_percent="96.00", metadata_percent="91.00")
    with pytest.raises(PoolShort, match="91 % of its metadata are used"):
        pool_of().create(uuid.UUID(int=8), 1, [0], 1)
    assert len(lvm.calls("lvcreate")) == 1


def test_heartbeats_do_not_ask_lvm_each_time_unless_something_changed(
    lvm: FakeLvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of()
    lvm.pool(volume())
    assert [pool.own(pool.recent()) != [] for _ in range(3)] == [True] * 3
    assert len(lvm.calls("lvs")) == 1
    pool.note_made("x")
    pool.recent()
    assert len(lvm.calls("lvs")) == 2
    monkeypatch.setattr(pool_module, "FRESH_SECONDS", 0.0)
    pool.recent()
    assert len(lvm.calls("lvs")) == 3


def test_a_volume_that_cannot_be_removed_is_not_taken_for_removed(lvm: FakeLvm) -> None:
    name = volume_name(ALLOCATION)
    lvm.pool(volume())
    with pytest.raises(PoolError, match="is still there after it was removed"):
        pool_of().remove(name)
    lvm.program("lvremove", f"echo '  Logical volume vg0/{name} in use.' >&2; exit 5")
    with pytest.raises(VolumeInUse, match="open in another program"):
        pool_of().remove(name)
    lvm.program("lvremove", f"echo '  Failed to find logical volume \"vg0/{name}\"' >&2; exit 5")
    lvm.says(report_of(row(**POOL)))
    pool_of().remove(name)


def test_snapshots_of_a_volume_are_found(lvm: FakeLvm) -> None:
    lvm.pool(volume(), row(lv_name="copy", lv_size="5", pool_lv="disks", origin=volume_name(ALLOCATION)))
    pool = pool_of()
    found = pool.find(ALLOCATION)
    assert found is not None
    with pytest.raises(VolumeInUse, match="copy of vg0 was made from"):
        pool.require_sole(found)


@pytest.mark.parametrize(
    ("elsewhere", "words"),
    [
        ("older", "is in the pool vg0/older and not in vg0/disks; set BERTH_LIBVIRT_DISK_POOL to vg0/older until"),
        ("", "is in no thin pool and not in vg0/disks; give the pool its name back with lvrename"),
    ],
)
def test_a_volume_of_another_pool_of_the_group_is_not_taken_for_absent(
    lvm: FakeLvm, elsewhere: str, words: str
) -> None:
    lvm.pool(volume(pool_lv=elsewhere))
    with pytest.raises(PoolError, match=words):
        pool_of().find(ALLOCATION)
    assert pool_of().look().state.virtual_bytes == 0, "the pool does not have it"
    assert [one.name for one in pool_of().own(pool_of().look())] == [volume_name(ALLOCATION)], "the node holds it"


def test_lvm_gets_no_more_of_the_environment_than_it_needs(lvm: FakeLvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_SECRET", "x")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LVM_SYSTEM_DIR", "/etc/other")
    lvm.program("lvs", "env")
    given = dict(line.split("=", 1) for line in run("lvs").splitlines())
    known = {
        "PATH",
        "LC_ALL",
        "LVM_SUPPRESS_FD_WARNINGS",
        "LVM_SYSTEM_DIR",
        "DM_DISABLE_UDEV",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    }
    assert set(given) <= known
    assert (given["LC_ALL"], given["LVM_SYSTEM_DIR"]) == ("C", "/etc/other")


def test_reports_are_in_words_whatever_lvm_conf_says(lvm: FakeLvm) -> None:
    look(NAME, 5)
    assert all("report/binary_values_as_numeric=0" in call for call in lvm.calls("lvs"))
    assert lvm.calls("lvs") != []
