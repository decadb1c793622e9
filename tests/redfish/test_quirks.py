"""Each quirk of the table: recognised by what the BMC sends, on vendors' samples where they exist."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BootTarget, Deadlines, PowerAction, PowerState
from node_agent.redfish.documents import Document
from node_agent.redfish.problems import NotSupported, ValueNotAllowed
from node_agent.redfish.quirks import QUIRKS, settings_hold_override
from tests.redfish.rack_server import BMC, SYSTEM, client, resources
from tests.redfish.running import run
from tests.support.bmc.machine import Options
from tests.support.bmc.samples import SampleTransport, sample
from tests.support.bmc.server import Stub, served

Use = Callable[[Stub, RedfishBmc], Awaitable[None]]
IMAGE = "https://deploy/medium.iso"


async def inserted(stub: Stub, bmc: RedfishBmc) -> dict[str, Any]:
    """Insert a medium; the body that the BMC took."""
    assert (await bmc.insert_medium(IMAGE)).inserted
    body: dict[str, Any] = json.loads(stub.service.accepted[-1][1])
    assert stub.machine.effects == ["insert"]
    assert (await bmc.eject_medium()).inserted is False
    return body


async def protocol_required(stub: Stub, bmc: RedfishBmc) -> None:
    assert await inserted(stub, bmc) == {"Image": IMAGE, "TransferProtocolType": "HTTPS"}


async def method_required(stub: Stub, bmc: RedfishBmc) -> None:
    assert await inserted(stub, bmc) == {"Image": IMAGE, "TransferMethod": "Stream"}


async def credentials_required(stub: Stub, bmc: RedfishBmc) -> None:
    assert await inserted(stub, bmc) == {"Image": IMAGE, "UserName": "none", "Password": "none"}


async def by_patch(stub: Stub, bmc: RedfishBmc) -> None:
    assert await inserted(stub, bmc) == {"Image": IMAGE, "Inserted": True, "WriteProtected": True}


async def without_location(stub: Stub, bmc: RedfishBmc) -> None:
    await bmc.power_state()
    await bmc.close()
    assert stub.machine.sessions == {}


async def without_sessions_link(stub: Stub, bmc: RedfishBmc) -> None:
    await bmc.power_state()
    assert len(stub.machine.sessions) == 1


async def overridden(stub: Stub, bmc: RedfishBmc) -> None:
    assert (await bmc.boot_once(BootTarget.CD)).once


async def started(stub: Stub, bmc: RedfishBmc) -> None:
    assert (await bmc.set_power(PowerAction.ON)).state is PowerState.ON


async def managed(stub: Stub, bmc: RedfishBmc) -> None:
    assert (await bmc.describe()).manager is not None


async def updated(stub: Stub, bmc: RedfishBmc) -> None:
    assert (await bmc.update_firmware("https://deploy/bmc.bin")).task_state == "Completed"


def refusing(error: str, *needs: str) -> Options:
    return Options(insert_error=sample(f"media/{error}"), insert_needs=needs)


CASES: list[tuple[str, Options, Use]] = [
    ("session_without_location", Options(session_location=False), without_location),
    ("sessions_link_missing", Options(sessions_link=False), without_sessions_link),
    ("weak_etag", Options(weak_etags_refused=True), overridden),
    ("settings_object", Options(settings_object=True), overridden),
    ("insert_by_patch", Options(media_actions=False), by_patch),
    (
        "transfer_protocol_required",
        refusing("transfer_proto_required_error", "TransferProtocolType"),
        protocol_required,
    ),
    (
        "transfer_protocol_required",
        refusing("transfer_proto_required_error2", "TransferProtocolType"),
        protocol_required,
    ),
    (
        "transfer_protocol_required",
        refusing("transfer_proto_required_error3", "TransferProtocolType"),
        protocol_required,
    ),
    (
        "transfer_protocol_required",
        refusing("transfer_proto_required_error4", "TransferProtocolType"),
        protocol_required,
    ),
    ("transfer_method_required", refusing("transfer_method_required_error", "TransferMethod"), method_required),
    ("credentials_required", refusing("credentials_required_error", "UserName", "Password"), credentials_required),
    ("managed_by_missing", Options(managed_by=False), managed),
    ("reset_types_unlisted", Options(reset_types=None), started),
    ("partial_task", Options(tasks=True, partial_tasks=True), updated),
]


@pytest.mark.parametrize(("name", "options", "use"), CASES)
def test_a_bmc_with_the_quirk_is_used_and_the_quirk_reported(name: str, options: Options, use: Use) -> None:
    async def scene() -> None:
        async with served(options) as stub:
            bmc = stub.client()
            await use(stub, bmc)
            assert list(bmc.quirks) == [name]

    run(scene())


def test_every_quirk_of_the_table_has_a_case_and_a_source() -> None:
    assert [quirk.name for quirk in QUIRKS] == list(dict.fromkeys(name for name, _, _ in CASES))
    assert all(quirk.seen_on and quirk.sign and quirk.conduct and quirk.source for quirk in QUIRKS)


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("settings-body-nokia", True),
        ("settings-body-lenovo-se450", False),
        ("settings-body-bootsourceoverridemode-only", False),
    ],
)
def test_only_a_settings_object_that_holds_the_override_is_written(body: str, holds: bool) -> None:
    assert settings_hold_override(Document("/", sample(f"systems/{body}"))) is holds


@pytest.mark.parametrize(
    ("settings", "body", "path", "target"),
    [
        ("settings-nokia", "settings-body-nokia", "/redfish/v1/Systems/Self/SD", "Cd"),
        ("settings-lenovo-se450", "settings-body-lenovo-se450", "/redfish/v1/Systems/1/Pending", "Pxe"),
    ],
)
def test_the_boot_override_of_samples_is_read_where_it_is_held(
    settings: str, body: str, path: str, target: str
) -> None:
    async def scene() -> None:
        system = sample("systems/system") | sample(f"systems/{settings}")
        found = resources() | {SYSTEM: system, path: sample(f"systems/{body}")}
        assert (await client(SampleTransport(found)).read_boot()).target == target

    run(scene())


def test_a_system_without_managed_by_has_the_manager_of_its_links() -> None:
    async def scene() -> None:
        found = resources() | {SYSTEM: sample("systems/system_managedby_missing_manager_present")}
        described = await client(SampleTransport(found)).describe()
        assert described.manager is not None
        assert described.manager.id == "BMC"
        assert described.quirks == ("managed_by_missing",)

    run(scene())


def test_media_of_a_manager_of_several_systems_are_not_used() -> None:
    async def scene() -> None:
        manager = sample("systems/manager")
        manager["Links"]["ManagerForServers"].append({"@odata.id": "/redfish/v1/Systems/2"})
        with pytest.raises(NotSupported, match="several systems"):
            await client(SampleTransport(resources() | {BMC: manager})).read_medium()

    run(scene())


def test_a_parameter_that_is_still_missing_is_an_error_and_not_a_loop() -> None:
    async def scene() -> None:
        async with served(refusing("transfer_proto_required_error", "Never")) as stub:
            with pytest.raises(ValueNotAllowed, match="ActionParameterMissing"):
                await stub.client(deadlines=Deadlines(read_seconds=5)).insert_medium(IMAGE)
            assert stub.machine.effects == []

    run(scene())
