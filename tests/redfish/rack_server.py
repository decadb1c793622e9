"""DMTF's rack server of sushy's samples, and a client of it."""

from __future__ import annotations

from typing import Any

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.samples import SampleTransport, sample

SYSTEM = "/redfish/v1/Systems/437XR1138R2"
BMC = "/redfish/v1/Managers/BMC"
FIRMWARE = "/redfish/v1/UpdateService/FirmwareInventory"


def resources(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """DMTF's rack server, with samples exchanged by the last word of their path."""
    drives = sample("systems/storage")["Drives"]
    found = {
        "/redfish/v1": sample("services/root"),
        "/redfish/v1/Systems": sample("systems/system_collection"),
        SYSTEM: sample("systems/system"),
        f"{SYSTEM}/EthernetInterfaces": sample("systems/ethernet_interfaces_collection"),
        f"{SYSTEM}/EthernetInterfaces/12446A3B0411": sample("systems/ethernet_interfaces"),
        f"{SYSTEM}/Storage": sample("systems/storage_collection"),
        f"{SYSTEM}/Storage/1": sample("systems/storage"),
        **{link["@odata.id"]: sample("systems/drive") for link in drives},
        "/redfish/v1/Managers": sample("systems/manager_collection"),
        BMC: sample("systems/manager"),
        f"{BMC}/VirtualMedia": sample("media/virtual_media_collection"),
        f"{BMC}/VirtualMedia/Floppy1": sample("media/virtual_media"),
        "/redfish/v1/UpdateService": sample("services/updateservice"),
        FIRMWARE: sample("services/firmwareinventory_collection")
        | {"Members": [{"@odata.id": f"{FIRMWARE}/BMC"}], "Members@odata.count": 1},
        f"{FIRMWARE}/BMC": sample("services/softwareinventory"),
    }
    return {path: changed.get(path.rpartition("/")[2], data) for path, data in found.items()}


def client(transport: SampleTransport) -> RedfishBmc:
    access = BmcAccess("https://bmc.example", "berth", "first-secret", "0" * 64)
    return RedfishBmc(access, clock=VirtualClock(), transport=transport)
