"""The check of the pool, at the start of an agent and by `python -m node_agent --check`, with stand-ins of LVM's programs."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node_agent.checks.disk_pool import check_disk_pool, disk_pool_by
from node_agent.checks.finding import Code, Severity
from node_agent.checks.start import require_fit_host
from node_agent.drivers.libvirt.disk_pool.contents import PoolName, owner_tag
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool, PoolSettings
from node_agent.drivers.libvirt.disk_pool.volumes_held import held_in, require_pool
from node_agent.drivers.libvirt.records import GuestDirectory
from node_agent.problems import CannotStart
from tests.libvirt_driver.choosing import settings
from tests.libvirt_driver.disk_pool.fake_lvm import GIB, POOL, FakeLvm, report_of, row


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            {"lv_name": "other"},
            Code.DISK_POOL_ABSENT,
            "lvcreate --type thin-pool --zero y --size SIZE --name disks vg0",
        ),
        ({"lv_layout": "linear"}, Code.DISK_POOL_NOT_THIN, "lvs -o lv_full_name,lv_layout"),
        ({"zero": ""}, Code.DISK_POOL_NOT_ZEROING, "lvchange --zero y vg0/disks"),
        ({"lv_check_needed": "check needed"}, Code.DISK_POOL_DAMAGED, "lvconvert --repair vg0/disks"),
        ({"data_percent": "97.00"}, Code.DISK_POOL_FULL, "lvextend --size +SIZE vg0/disks"),
        ({}, None, ""),
    ],
    ids=["absent", "not thin", "not zeroing", "damaged", "full", "fit"],
)
def test_each_finding_of_a_pool_names_its_remedy(
    lvm: FakeLvm, changes: dict[str, str], code: Code | None, words: str
) -> None:
    lvm.pool(**changes)
    finding = check_disk_pool("vg0/disks", 1.0)[-1]
    assert (finding.code, words in finding.remedy) == (code, True), finding.line()


def test_programs_that_are_missing_or_silent_or_fail(lvm: FakeLvm, monkeypatch: pytest.MonkeyPatch) -> None:
    lvm.program("lvs", "sleep 60 & trap 'exit 1' TERM; wait")
    assert check_disk_pool("vg0/disks", 1.0, 0.3)[0].code is Code.DISK_POOL_SILENT
    lvm.program("lvs", "echo no permission >&2; exit 5")
    finding = check_disk_pool("vg0/disks", 1.0)[0]
    assert (finding.code, finding.found) == (Code.DISK_POOL_SILENT, "lvs: no permission")
    monkeypatch.setattr("shutil.which", lambda *_arguments, **_options: None)
    finding = check_disk_pool("vg0/disks", 1.0)[0]
    assert (finding.code, "lvm2 thin-provisioning-tools" in finding.remedy) == (Code.DISK_POOL_PROGRAM_MISSING, True)


def test_more_than_the_pool_has_is_said(lvm: FakeLvm) -> None:
    lvm.pool(row(lv_name="x", lv_size=str(150 * GIB), pool_lv="disks"))
    finding = check_disk_pool("vg0/disks", 2.0)[-1]
    assert (finding.code, finding.severity) == (Code.DISK_POOL_OVERCOMMITTED, Severity.INFORMS)
    assert "may have 214748364800 bytes together and have 161061273600" in finding.found


@pytest.mark.parametrize(
    "name", ["vg0", "/disks", "vg0/", "../disks", "vg0/..", "vg 0/disks", "-vg/disks", "a/b/c", "vg0/d;x"]
)
def test_a_name_that_is_none_is_refused_without_lvm(lvm: FakeLvm, tmp_path: Path, name: str) -> None:
    assert check_disk_pool(name, 1.0)[0].code is Code.DISK_POOL_ABSENT
    with pytest.raises(ValueError, match="libvirt_disk_pool"):
        settings(tmp_path, libvirt_disk_pool=name)
    assert lvm.calls() == []


def test_no_setting_asks_nothing(lvm: FakeLvm) -> None:
    assert check_disk_pool(*disk_pool_by({"BERTH_LIBVIRT_DISK_POOL": ""})) == []
    assert disk_pool_by({"BERTH_LIBVIRT_DISK_POOL": "a/b", "BERTH_LIBVIRT_DISK_POOL_OVERCOMMIT": "x"}) == ("a/b", 1.0)
    assert held_in(None) == []
    require_pool(None, [])
    assert lvm.calls() == []


@pytest.mark.parametrize("overcommit", ["inf", "-inf", "nan", "0.09", "100.1", "1e400", "x"])
def test_an_overcommit_that_the_agent_refuses_counts_as_not_set(lvm: FakeLvm, tmp_path: Path, overcommit: str) -> None:
    set_so = {"BERTH_LIBVIRT_DISK_POOL": "vg0/disks", "BERTH_LIBVIRT_DISK_POOL_OVERCOMMIT": overcommit}
    assert check_disk_pool(*disk_pool_by(set_so))[-1].code is None
    assert disk_pool_by(set_so) == ("vg0/disks", 1.0)
    with pytest.raises(ValueError, match="libvirt_disk_pool_overcommit"):
        settings(tmp_path, libvirt_disk_pool_overcommit=overcommit)


def test_an_agent_does_not_start_on_a_pool_that_does_not_zero(lvm: FakeLvm, tmp_path: Path) -> None:
    lvm.pool(zero="")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # pytest's directories are closed to QEMU's users
        directory = Path(name)
        directory.chmod(0o711)
        (directory / "agent").mkdir()
        given = settings(directory, guest_dir=directory, libvirt_disk_pool="vg0/disks")
        with pytest.raises(
            CannotStart, match=r"disk pool: vg0/disks does not zero .*\[disk_pool_not_zeroing\]; lvchange"
        ):
            asyncio.run(require_fit_host(given, tmp_path))


def guest(tmp_path: Path, volume: str) -> GuestDirectory:
    """The directory of a guest whose disk is this volume."""
    directory = GuestDirectory(tmp_path / "guest")
    directory.path.mkdir(exist_ok=True)
    directory.volume_file.unlink(missing_ok=True)
    directory.note_volume(volume)
    return directory


def pool(tmp_path: Path) -> DiskPool:
    """A pool as an agent has it."""
    return DiskPool(PoolSettings(PoolName("vg0", "disks")), tmp_path)


def test_the_pool_of_guests_that_are_there_cannot_be_taken_away(lvm: FakeLvm, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="have a volume, as vg0/berth-x; set BERTH_LIBVIRT_DISK_POOL until"):
        require_pool(None, [guest(tmp_path, "vg0/berth-x")])
    with pytest.raises(CannotStart, match="in another volume group than vg0/disks, as vg1/berth-x"):
        require_pool(pool(tmp_path), [guest(tmp_path, "vg1/berth-x")])
    require_pool(pool(tmp_path), [guest(tmp_path, "vg0/berth-x")])
    lvm.pool(row(lv_name="berth-x", lv_size="5", pool_lv="older"), row(lv_name="root", lv_size="5"))
    with pytest.raises(
        CannotStart, match="vg0/berth-x is in the pool vg0/older and not in vg0/disks; set BERTH_LIBVIRT"
    ):
        require_pool(pool(tmp_path), [guest(tmp_path, "vg0/berth-x")])
    require_pool(pool(tmp_path), [])
    lvm.pool(row(lv_name=f"berth-{UUID(int=1)}", lv_size="5", pool_lv="older", lv_tags=owner_tag(tmp_path)))
    with pytest.raises(CannotStart, match="the disks of 1 guests of this node: vg0/berth-"):
        require_pool(pool(tmp_path), [])
    lvm.says("{")
    with pytest.raises(CannotStart, match="the thin pool vg0/disks: the report of LVM cannot be read"):
        require_pool(pool(tmp_path), [])


def test_a_pool_that_becomes_full_is_logged_once(lvm: FakeLvm, tmp_path: Path) -> None:
    found = pool(tmp_path)
    full: dict[str, Any] = {**POOL, "data_percent": "99.00"}
    noted = []
    for said in (POOL, full, full, POOL, full):
        lvm.says(report_of(row(**said)))
        noted.append(found.notes_full(found.why_full()))
    assert noted == [False, True, False, False, True]


def test_what_names_the_volume_survives_its_wipe(tmp_path: Path) -> None:
    directory = guest(tmp_path, "vg0/berth-x")
    assert (directory.volume, directory.device) == ("vg0/berth-x", "vg0/berth-x")
    directory.mark_wiped()
    assert (directory.volume, directory.device, directory.volume_file.exists()) == ("vg0/berth-x", "vg0/berth-x", False)
    directory.wiped_disk.write_text("")  # that of a disk that was a file
    assert (directory.volume, directory.device) == (None, "allocations/guest/disk.qcow2")
