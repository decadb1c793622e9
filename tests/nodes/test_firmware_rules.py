"""Which versions of firmware a release objects to: changed, not listed, not read; never what no source has reported."""

from __future__ import annotations

from node_agent.wire.deploy_tasks import FirmwareVersion, MetalInspectReport
from node_agent.wire.sites import BmcFirmware, BmcInventory, BmcManager
from orchestrator.nodes.firmware.rules import (
    OBJECTIONS_MAX,
    Accepted,
    Objection,
    Reading,
    objections,
    of_bmc,
    of_report,
)
from tests.deploy_system.stage import INSPECTED, TOPOLOGY


def version(text: str, component: str = "bios", unit: str = "smbios", model: str | None = None) -> FirmwareVersion:
    return FirmwareVersion(component=component, unit=unit, model=model, version=text)


def accepted(component: str, *versions: str, model: str | None = None) -> Accepted:
    return Accepted(component, model, frozenset(versions))


DISK = version("A1", "disk", "S1", "Disk 9000")
BMC = version("7.00", "bmc", "BMC")


def test_another_version_and_a_version_that_is_not_stated_any_more_are_changes() -> None:
    before = Reading([version("1.0"), DISK], [BMC])
    after = Reading([version("1.1")], [version("7.01", "bmc", "BMC")])
    assert objections(before, after, None) == [
        (Objection.CHANGED, "bios smbios: 1.0 before, 1.1 now"),
        (Objection.CHANGED, "disk S1: A1 before, not stated now"),
        (Objection.CHANGED, "bmc BMC: 7.00 before, 7.01 now"),
    ]
    assert objections(before, before, None) == []


def test_what_no_source_reported_is_no_change() -> None:
    whole = Reading([version("1.0")], [BMC])
    for silent in (Reading(None, None), Reading(None, [BMC]), Reading([version("1.0")], None)):
        assert objections(whole, silent, None) == [], "an agent or medium of the version before"
        assert objections(silent, whole, None) == [], "an inspection by the version before"
    assert objections(Reading([], None), whole, None) == [], "a newer medium reads more"


def test_a_part_of_its_description_that_a_bmc_did_not_give_is_no_change() -> None:
    nic, drive = version("1.2", "inventory", "NIC"), version("9", "inventory", "Drive")
    before = Reading(None, [BMC, nic, drive])
    assert objections(before, Reading(None, [BMC]), None) == [], "the inventory was not read"
    assert objections(before, Reading(None, [nic, drive]), None) == [], "the manager was not read"
    assert objections(before, Reading(None, [BMC, nic]), None) == [
        (Objection.CHANGED, "inventory Drive: 9 before, not stated now")
    ]


def test_entries_of_a_bmc_with_one_name_are_one_part() -> None:
    installed, previous = (version(text, "inventory", "BIOS", "BIOS") for text in ("2.1", "2.0"))
    assert objections(Reading(None, [installed, previous]), Reading(None, [previous, installed]), None) == []
    changed = objections(Reading(None, [installed, previous]), Reading(None, [installed]), None)
    assert changed == [(Objection.CHANGED, "inventory BIOS: 2.0, 2.1 before, 2.1 now")]


def test_a_version_that_the_list_of_the_model_does_not_have_is_objected_to() -> None:
    now = Reading([version("1.0"), DISK], [BMC])
    listed = [accepted("bios", "1.0", "1.1"), accepted("bmc", "7.00"), accepted("disk", "A1", model="Disk 9000")]
    assert objections(now, now, listed) == []
    assert objections(now, now, [accepted("bios", "1.1"), *listed[1:]]) == [(Objection.NOT_LISTED, "bios smbios: 1.0")]
    other = [*listed[:2], accepted("disk", "B7", model="Disk 9000"), accepted("disk", "A1", model="Disk 1")]
    assert objections(now, now, other) == [(Objection.NOT_LISTED, "disk S1 (Disk 9000): A1")]
    both = [*listed[:2], accepted("disk", "B7", model="Disk 9000"), accepted("disk", "A1")]
    assert objections(now, now, both) == [], "one of several entries that name the part suffices"


def test_a_part_that_the_list_does_not_name_is_compared_with_the_inspection_alone() -> None:
    now = Reading([version("1.0"), DISK], [BMC])
    assert objections(now, now, [accepted("disk", "B7", model="another model")]) == []


def test_a_listed_bios_or_bmc_that_was_not_read_is_objected_to() -> None:
    listed = [accepted("bios", "1.0"), accepted("bmc", "7.00"), accepted("nic", "16.35"), accepted("disk", "A1")]
    assert objections(Reading(None, None), Reading(None, None), listed) == [
        (Objection.NOT_READ, "bios: no version was read"),
        (Objection.NOT_READ, "bmc: no version was read"),
    ], "a machine may have no such adapter or disk"


def test_objections_are_bounded() -> None:
    many = [version("1", "disk", f"S{number}") for number in range(OBJECTIONS_MAX + 5)]
    found = objections(Reading(many, None), Reading([], None), None)
    assert len(found) == OBJECTIONS_MAX
    assert found[-1] == (Objection.CHANGED, "and 6 more")
    assert len(objections(Reading(many[:OBJECTIONS_MAX], None), Reading([], None), None)) == OBJECTIONS_MAX


def inventory(**changes: object) -> BmcInventory:
    known: dict[str, object] = {
        "id": "1", "manufacturer": "", "model": "", "serial": "", "uuid": "", "bios_version": "", "processor_model": "",
        "nics": [], "disks": [], "quirks": [],
        "firmware": [BmcFirmware(id="a-1.2", name="NIC", version="1.2", updateable=True)],
        "manager": BmcManager(id="BMC", model="X", firmware_version="7.00"),
    }  # fmt: skip
    return BmcInventory.model_validate({**known, **changes})


def test_a_bmc_names_itself_and_its_inventory_and_what_it_leaves_empty_was_not_read() -> None:
    assert [(one.component, one.unit, one.version) for one in of_bmc(inventory())] == [
        ("bmc", "BMC", "7.00"), ("inventory", "NIC", "1.2"),
    ]  # fmt: skip
    empty = BmcManager(id="BMC", model="", firmware_version="")
    nothing = BmcFirmware(id="x", name="NIC", version="  ", updateable=True)
    assert of_bmc(inventory(manager=empty, firmware=[nothing])) == []
    assert [one.component for one in of_bmc(inventory(cut=True))] == ["bmc"], "part of an inventory is none"
    strange = BmcFirmware(id="x", name="N\u00efc \U0001f600" + "n" * 100, version="v" * 150, updateable=True)
    assert len(of_bmc(inventory(firmware=[strange]))) == 2


def test_an_inspection_of_before_has_its_bios_alone() -> None:
    report = {**INSPECTED, "topology": {**TOPOLOGY, "firmware": {"bios_vendor": "V", "bios_version": "1.0"}}}
    (found,) = of_report(MetalInspectReport.model_validate(report))
    assert (found.component, found.unit, found.model, found.version) == ("bios", "smbios", "V", "1.0")
    assert of_report(MetalInspectReport.model_validate(INSPECTED)) == []
