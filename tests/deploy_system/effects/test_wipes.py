"""A wipe writes nothing until the machine's disks are those expected, believes no tool, and ends with zeroes or a failure."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from node_agent.deploy_system.effects import erasing
from node_agent.deploy_system.effects.contract import Host, Interrupted, Progress, ToolRun, WorkFailed
from node_agent.deploy_system.effects.disks import FoundDisk
from node_agent.deploy_system.effects.methods import has_ended
from node_agent.deploy_system.effects.uefi_variables import GLOBAL
from node_agent.deploy_system.effects.wiping import wipe
from node_agent.wiping.devices import WipeLevel, level_of
from node_agent.wiping.machine_reports import NOT_COMPARED, UEFI
from node_agent.wire.deploy_tasks import MetalWipeParameters, MetalWipeReport
from tests.deploy_system.effects.machines import DISK_BYTES, Machine, filled, identity

SUCCESS = ToolRun(0, "")
NVME_CLAIMS = '{"sanicap": 3, "oacs": 2, "fna": 4}'


def wiping(machine: Machine, *disks: str, **more: object) -> MetalWipeReport:
    parameters = MetalWipeParameters.model_validate(
        {"deploy_epoch": 1, "disks": [identity(serial).model_dump() for serial in disks], **more}
    )
    return wipe(machine.host, parameters, machine.progress)


def failing(machine: Machine, *disks: str, **more: object) -> WorkFailed:
    with pytest.raises(WorkFailed) as caught:
        wiping(machine, *disks, **more)
    assert caught.value.next_step
    return caught.value


def test_every_disk_is_overwritten_and_read_as_a_whole(machine: Machine) -> None:
    paths = [machine.add_disk(name, serial) for name, serial in (("vda", "one"), ("vdb", "two"))]
    for path in paths:
        filled(path)
    report = wiping(machine, "one", "two", markers=[b"a tenant was here".hex()])
    assert [path.read_bytes().count(0) for path in paths] == [DISK_BYTES, DISK_BYTES]
    assert [(disk.serial, disk.method, disk.read_bytes, disk.proven) for disk in report.disks] == [
        ("one", "overwrite", DISK_BYTES, True),
        ("two", "overwrite", DISK_BYTES, True),
    ]


def test_a_tool_that_reports_success_and_erases_nothing_is_not_believed(machine: Machine) -> None:
    path = machine.add_disk("nvme0n1", "liar")
    filled(path)
    claims = {"id-ctrl": ToolRun(0, NVME_CLAIMS), "sanitize-log": ToolRun(0, '{"sstat": 257}')}
    machine.tools["nvme"] = lambda command: claims.get(command[1], SUCCESS)
    (disk,) = wiping(machine, "liar").disks
    assert path.read_bytes().count(0) == DISK_BYTES
    assert [attempt.method for attempt in disk.attempts] == [
        "nvme_sanitize_crypto", "nvme_sanitize_block", "nvme_format_crypto", "nvme_format_user_data", "overwrite",
    ]  # fmt: skip
    assert disk.method == "overwrite"
    assert level_of(disk.method) is WipeLevel.CLEAR


def test_a_method_that_erases_a_part_is_followed_by_the_next(machine: Machine) -> None:
    path = machine.add_disk("vda", "part", discards=True)
    filled(path)

    def half(command: Sequence[str]) -> ToolRun:
        with path.open("r+b") as file:
            file.write(bytes(DISK_BYTES // 2))
        return SUCCESS

    machine.tools["blkdiscard"] = half
    (disk,) = wiping(machine, "part").disks
    assert [attempt.method for attempt in disk.attempts] == ["discard_zero_out", "overwrite"]
    assert path.read_bytes().count(0) == DISK_BYTES


def test_a_crypto_erase_counts_where_no_marker_is_left_and_is_followed_by_zeroes(machine: Machine) -> None:
    path = machine.add_disk("nvme0n1", "keyed")

    def nvme(command: Sequence[str]) -> ToolRun:
        if command[1] == "id-ctrl":
            return ToolRun(0, NVME_CLAIMS)
        if command[1] == "sanitize":
            path.write_bytes(os.urandom(DISK_BYTES))
        return ToolRun(0, '{"sstat": 257}')

    machine.tools["nvme"] = nvme
    (disk,) = wiping(machine, "keyed").disks
    assert disk.method == "nvme_sanitize_crypto"
    assert level_of(disk.method) is WipeLevel.PURGE
    assert [attempt.method for attempt in disk.attempts] == ["nvme_sanitize_crypto", "overwrite"]
    assert disk.proven
    assert path.read_bytes().count(0) == DISK_BYTES


def test_a_crypto_erase_that_did_nothing_is_no_purge(machine: Machine) -> None:
    path = machine.add_disk("nvme0n1", "liar")
    filled(path)
    machine.tools["nvme"] = lambda command: ToolRun(0, NVME_CLAIMS if command[1] == "id-ctrl" else '{"sstat": 257}')
    (disk,) = wiping(machine, "liar").disks
    assert disk.method == "overwrite"
    assert level_of(disk.method) is WipeLevel.CLEAR


def test_a_sanitize_under_way_is_waited_for() -> None:
    assert not has_ended('{"sstat": 258}')
    assert not has_ended("State: SD2 Sanitize operation In Progress")
    assert has_ended('{"sstat":257}')


def test_what_is_left_after_the_overwrite_fails_closed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(machine.add_disk("vda", "good"))
    filled(machine.add_disk("vdb", "stuck"))
    real = erasing._overwrite

    def overwrite(host: Host, progress: Progress, disk: FoundDisk) -> None:
        if disk.serial == "good":  # the other one takes writes and keeps its content
            real(host, progress, disk)

    monkeypatch.setattr(erasing, "_overwrite", overwrite)
    failure = failing(machine, "good", "stuck")
    assert failure.code == "wipe_not_proven"
    assert "overwrite" in failure.detail
    assert failure.evidence is not None
    assert [(disk.serial, disk.proven) for disk in failure.evidence.disks] == [("good", True)]


@pytest.mark.parametrize(
    ("here", "named", "code"),
    [
        (["one", "more"], ["one"], "disk_unknown"),
        (["one"], ["one", "gone"], "disk_missing"),
        (["one", None], ["one"], "disk_ambiguous"),
        (["one", "one"], ["one"], "disk_ambiguous"),
    ],
)
def test_other_disks_than_expected_fail_before_a_byte_is_written(
    machine: Machine, here: list[str | None], named: list[str], code: str
) -> None:
    paths = [machine.add_disk(f"vd{letter}", serial) for letter, serial in zip("ab", here, strict=False)]
    for path in paths:
        filled(path)
    before = [path.read_bytes() for path in paths]
    assert failing(machine, *named).code == code
    assert [path.read_bytes() for path in paths] == before


def test_a_disk_of_another_size_is_another_disk(machine: Machine) -> None:
    machine.add_disk("vda", "one", size_bytes=DISK_BYTES - 2**20)  # a namespace that was made smaller hides the rest
    assert failing(machine, "one").code == "disk_unknown"


def test_a_controller_without_a_driver_fails_closed(machine: Machine) -> None:
    path = machine.add_disk("vda", "one")
    filled(path)
    before = path.read_bytes()
    machine.add_pci("0000:02:00.0", "010802", "nvme")
    machine.add_pci("0000:04:00.0", "020000", None)  # a network port
    machine.add_pci("0000:03:00.0", "010802", None)
    failure = failing(machine, "one")
    assert (failure.code, failure.detail) == ("storage_without_driver", "no disk is seen behind 0000:03:00.0")
    assert path.read_bytes() == before


def test_an_nvme_controller_without_a_namespace_fails_closed(machine: Machine) -> None:
    machine.add_disk("vda", "one")
    controller = machine.root / "sys/class/nvme/nvme0"
    controller.mkdir(parents=True)
    (controller / "address").write_text("0000:04:00.0\n")
    assert failing(machine, "one").code == "storage_without_driver"


def test_a_disk_that_takes_no_writes_fails_closed(machine: Machine) -> None:
    path = machine.add_disk("vda", "locked")
    path.unlink()
    path.symlink_to("/dev/full")
    assert failing(machine, "locked").code == "disk_error"


def test_a_large_disk_is_sampled_at_its_markers_and_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "WHOLE_READ_BYTES_MAX", 0)
    monkeypatch.setattr(erasing, "SAMPLES", 4)
    monkeypatch.setattr(erasing, "MARKERS", 4)
    size = 256 * 2**20
    path = machine.add_disk("vda", "large", size_bytes=size, discards=True)
    machine.tools["blkdiscard"] = lambda command: SUCCESS  # and does nothing
    report = wipe(
        machine.host,
        MetalWipeParameters.model_validate({"deploy_epoch": 1, "disks": [identity("large", size).model_dump()]}),
        machine.progress,
    )
    assert report.disks[0].method == "overwrite"
    assert 4 * 2**20 <= report.disks[0].read_bytes <= 10 * 2**20
    assert path.stat().st_size == size


def test_variables_that_inspection_had_not_found_are_removed_and_others_reported(machine: Machine) -> None:
    machine.add_disk("vda", "one")
    machine.add_variable(f"BootOrder-{GLOBAL}", b"\1\0")
    machine.add_variable(f"Timeout-{GLOBAL}", b"\5\0")
    machine.add_variable(
        f"BootCurrent-{GLOBAL}", b"\1\0", attributes=6
    )  # volatile: the firmware makes it at each start
    from node_agent.deploy_system.effects.uefi_variables import variables

    inspected = variables(machine.host)
    assert inspected is not None
    machine.add_variable("Tenant-be127400-0000-4000-8000-000000000001", b"was here")
    machine.add_variable(f"Timeout-{GLOBAL}", b"\xff\xff")
    machine.add_variable("T\xe9nant-be127400-0000-4000-8000-000000000001", b"was here")
    report = wiping(machine, "one", uefi_variables=[variable.model_dump() for variable in inspected])
    assert report.variables_removed == ["Tenant-be127400-0000-4000-8000-000000000001"]
    assert report.variables_changed == [f"Timeout-{GLOBAL}"]
    assert report.variables_remaining == []
    assert sorted(path.name for path in machine.host.efi_variables.iterdir()) == [
        f"BootCurrent-{GLOBAL}", f"BootOrder-{GLOBAL}", f"Timeout-{GLOBAL}",
    ]  # fmt: skip


def test_a_variable_that_cannot_be_removed_is_reported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from node_agent.deploy_system.effects import uefi_variables

    machine.add_disk("vda", "one")
    name = "Tenant-be127400-0000-4000-8000-000000000001"
    machine.add_variable(name, b"was here")
    monkeypatch.setattr(uefi_variables, "_remove", lambda path: None)  # firmware that refuses
    report = wiping(machine, "one", uefi_variables=[])
    assert (report.variables_removed, report.variables_remaining) == ([], [name])


def test_without_inspected_variables_nothing_is_compared(machine: Machine) -> None:
    machine.add_disk("vda", "one")
    machine.add_variable(f"BootOrder-{GLOBAL}", b"\1\0")
    report = wiping(machine, "one")
    assert [gap.subject for gap in report.gaps] == ["uefi_variables"]
    assert (machine.host.efi_variables / f"BootOrder-{GLOBAL}").exists()


def test_where_this_start_shows_no_variables_it_is_said_that_nothing_was_compared(machine: Machine) -> None:
    machine.add_disk("vda", "one")
    listed = [{"name": f"BootOrder-{GLOBAL}", "sha256": "0" * 64}]
    report = wiping(machine, "one", uefi_variables=listed)  # started by BIOS this time
    (gap,) = report.gaps
    assert (gap.subject, gap.reason.endswith(NOT_COMPARED)) == (UEFI, True)


@pytest.mark.parametrize(
    ("cleared", "properties", "handles", "code"),
    [
        (0, "ownerAuthSet: 0\nendorsementAuthSet: 0\nlockoutAuthSet: 0", "- 0x81800001", None),
        (0, "ownerAuthSet: 1\nendorsementAuthSet: 0\nlockoutAuthSet: 0", "", "tpm_not_cleared"),
        (0, "ownerAuthSet: 0\nendorsementAuthSet: 0\nlockoutAuthSet: 0", "- 0x81000001", "tpm_not_cleared"),
        (1, "ownerAuthSet: 0\nendorsementAuthSet: 0\nlockoutAuthSet: 0", "", "tpm_not_cleared"),
    ],
)
def test_a_tpm_is_cleared_when_it_reports_that_itself(
    machine: Machine, cleared: int, properties: str, handles: str, code: str | None
) -> None:
    machine.add_disk("vda", "one")
    (machine.root / "dev/tpmrm0").touch()
    machine.tools["tpm2_clear"] = lambda command: ToolRun(cleared, "")
    machine.tools["tpm2_getcap"] = lambda command: ToolRun(0, handles if "handles" in command[-1] else properties)
    if code is None:
        assert wiping(machine, "one", clear_tpm=True).tpm == "cleared"
    else:
        assert failing(machine, "one", clear_tpm=True).code == code


def test_a_machine_without_a_tpm_reports_that(machine: Machine) -> None:
    machine.add_disk("vda", "one")
    assert wiping(machine, "one", clear_tpm=True).tpm == "absent"


def test_a_stop_ends_the_wipe_and_a_second_run_completes_it(machine: Machine) -> None:
    path = machine.add_disk("vda", "one", discards=True)
    filled(path)

    def stopping(command: Sequence[str]) -> ToolRun:
        machine.stopped.set()
        return SUCCESS

    machine.tools["blkdiscard"] = stopping
    with pytest.raises(Interrupted):
        wiping(machine, "one")
    machine.stopped.clear()
    machine.tools["blkdiscard"] = lambda command: ToolRun(1, "refused")
    assert wiping(machine, "one").disks[0].proven


@pytest.mark.full
def test_a_step_ends_at_its_deadline(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from node_agent.deploy_system.effects import steps

    machine.add_disk("vda", "one")
    monkeypatch.setitem(steps.STEPS, "overwrite", steps.StepBounds(-1))
    failure = failing(machine, "one")
    assert (failure.code, failure.step) == ("disk_error", "overwrite")
