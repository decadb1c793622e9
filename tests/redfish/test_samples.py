"""The client's read path on answers of DMTF and vendors, as sushy collected them (samples/SOURCE.md)."""

from __future__ import annotations

import pytest

from node_agent.redfish.contract import BootOverride, Disk, FirmwareItem, Manager, Nic, PowerState
from node_agent.redfish.problems import NotSupported
from tests.redfish.rack_server import BMC, SYSTEM, client, resources
from tests.redfish.running import run
from tests.support.bmc.samples import SampleTransport, sample


def test_the_rack_server_is_described() -> None:
    async def scene() -> None:
        found = await client(SampleTransport(resources())).describe()
        assert (found.manufacturer, found.model, found.serial) == ("Contoso", "3500", "437XR1138R2")
        assert found.uuid == "38947555-7742-3448-3784-823347823834"
        assert (found.processors, found.memory_bytes, found.power_state) == (2, 96 << 30, PowerState.ON)
        assert found.nics == (Nic("1", "12:44:6a:3b:04:11", None),)
        assert found.disks[0] == Disk("32ADF365C6C1B7BD", "C123", "1234570", 899527000000, "SAS")
        assert found.firmware == (FirmwareItem("BMC", "Contoso BMC Firmware", "1.45.455b66-rev4", True),)
        assert found.manager == Manager("BMC", "Joo Janta 200", "1.00")

    run(scene())


@pytest.mark.parametrize(("system", "manager"), [("systemv1_20", "managerv1_18"), ("system", "managerv1_18")])
def test_newer_versions_of_the_schemas_are_read(system: str, manager: str) -> None:
    async def scene() -> None:
        changed = {"437XR1138R2": sample(f"systems/{system}"), "BMC": sample(f"systems/{manager}")}
        found = await client(SampleTransport(resources(**changed) | {BMC: sample(f"systems/{manager}")})).describe()
        assert found.serial == "437XR1138R2"
        assert found.manager is not None
        assert found.manager.firmware_version == "1.45.455b66-rev4"

    run(scene())


def test_parts_that_a_bmc_lacks_are_empty() -> None:
    async def scene() -> None:
        only = {
            path: data for path, data in resources().items() if path in ("/redfish/v1", "/redfish/v1/Systems", SYSTEM)
        }
        found = await client(SampleTransport(only)).describe()
        assert found.serial == "437XR1138R2"
        assert (found.nics, found.disks, found.firmware, found.manager) == ((), (), (), None)

    run(scene())


def test_the_boot_override_and_the_lack_of_a_cd_are_read() -> None:
    async def scene() -> None:
        bmc = client(SampleTransport(resources()))
        assert await bmc.read_boot() == BootOverride("Pxe", True, "Once")
        with pytest.raises(NotSupported, match="Cd"):
            await bmc.read_medium()

    run(scene())


def test_the_root_alone_says_that_there_is_no_system() -> None:
    async def scene() -> None:
        with pytest.raises(NotSupported, match="systems"):
            await client(SampleTransport({"/redfish/v1": sample("services/bare_minimum_root")})).power_state()

    run(scene())


def test_a_medium_of_the_system_comes_before_those_of_its_manager() -> None:
    async def scene() -> None:
        system = sample("systems/system") | {"VirtualMedia": {"@odata.id": f"{SYSTEM}/VirtualMedia"}}
        found = resources() | {
            SYSTEM: system,
            f"{SYSTEM}/VirtualMedia": sample("media/virtual_media_collectionv1_6"),
            f"{SYSTEM}/VirtualMedia/CD1": sample("media/virtual_mediav1_6"),
        }
        medium = await client(SampleTransport(found)).read_medium()
        assert (medium.inserted, medium.write_protected) == (True, False)
        assert medium.image == "redfish.dmtf.org/freeImages/freeOS.1.1.iso"

    run(scene())


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ("session_creation_headers", "/redfish/v1/SessionService/Sessions/151edd65d41c0b89"),
        ("session_creation_headers_no_location", sample("services/session")["@odata.id"]),
    ],
)
def test_the_session_of_a_login_is_deleted(headers: str, session: str) -> None:
    async def scene() -> None:
        transport = SampleTransport(resources(), f"services/{headers}")
        bmc = client(transport)
        await bmc.power_state()
        await bmc.close()
        assert transport.requests[-1] == f"DELETE {session}"

    run(scene())
