"""The stub judged by DMTF's schemas: each resource that a client can reach is as Redfish defines it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.redfish.dmtf_schemas import DmtfSchemas
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.machine import SYSTEM, Options, StubMachine
from tests.support.bmc.resources import ROOT, SESSIONS
from tests.support.bmc.service import PATCHABLE, Request, StubService

pytestmark = pytest.mark.hardware
CREDENTIALS = "Basic " + base64.b64encode(b"berth:first-secret").decode()
CONSOLE = {"SSH": {"ServiceEnabled": True, "Port": 22}, "MaxConcurrentSessions": 1}
SERVICES = {
    "plain": Options(),
    "consoles": Options(
        console=lambda: CONSOLE, manager_console={"ServiceEnabled": True, "ConnectTypesSupported": ["SSH"]}
    ),
    "media of the system": Options(media_of_system=True),
    "a settings object": Options(settings_object=True),
    "reset types in an action info": Options(action_info=True),
    "tasks": Options(tasks=True, task_seconds=5, update_applies="host"),
    "no sessions": Options(sessions=False),
}
DEVIATIONS = {
    # An early service: the quirk `sessions_link_missing`.
    "no sessions": {ROOT: ["ServiceRoot/Links: 'Sessions' is a required property"]},
    # A vendor's choice: DMTF lists no address for settings objects of a system.
    "a settings object": {f"{SYSTEM}/SD": [f"{SYSTEM}/SD is no address of ComputerSystem"]},
}
"""What a service differs in on purpose."""
RESOURCES_MIN = 25


def ask(service: StubService, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    """The status and body of one request by the stub's user."""
    content = json.dumps(body).encode() if body is not None else b""
    headers = {"authorization": CREDENTIALS, "content-type": "application/json"}
    reply = service.handle(Request(method, path, headers, content))
    return reply.status, json.loads(reply.body) if reply.body else {}


def links(value: object) -> list[str]:
    """Every address that a resource names."""
    if isinstance(value, dict):
        own = [value["@odata.id"]] if isinstance(value.get("@odata.id"), str) else []
        return own + [link for one in value.values() for link in links(one)]
    return [link for one in value for link in links(one)] if isinstance(value, list) else []


def reached(service: StubService) -> dict[str, dict[str, Any]]:
    """Every resource that links lead to from the root, by its address. Fails at a link that leads nowhere."""
    found: dict[str, dict[str, Any]] = {}
    ahead = [ROOT]
    while ahead:
        if (path := ahead.pop()) in found:
            continue
        status, resource = ask(service, "GET", path)
        assert status == 200, (path, status)
        assert resource["@odata.id"] == path
        found[path] = resource
        ahead += links(resource)
    return found


@pytest.mark.parametrize("name", SERVICES)
def test_each_resource_of_the_stub_is_as_dmtf_defines_it(name: str) -> None:
    options = SERVICES[name]
    schemas = DmtfSchemas()
    service = StubService(StubMachine(VirtualClock(), options))
    if options.tasks:
        update = {"ImageURI": "https://127.0.0.1/image"}
        assert ask(service, "POST", "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate", update)[0] == 202
    if options.sessions:
        assert ask(service, "POST", SESSIONS, {"UserName": "berth", "Password": "first-secret"})[0] == 201
    resources = reached(service)
    assert {path: problems for path, one in resources.items() if (problems := schemas.problems(one))} == DEVIATIONS.get(
        name, {}
    )
    assert len(resources) >= RESOURCES_MIN


def test_what_the_stub_lets_a_client_write_is_writable_by_dmtf() -> None:
    schemas = DmtfSchemas()
    resources = reached(StubService(StubMachine(VirtualClock())))
    writable = [(path, name) for path, one in resources.items() for name in PATCHABLE if name in one]
    assert [one for one in writable if not schemas.is_writable(resources[one[0]], one[1])] == []
    assert len(writable) >= 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"PowerState": "Sleeping"}, "PowerState"),
        ({"Name": None}, "Name"),
        ({"Colour": "red"}, "Colour is unknown"),
        ({"Boot": {"Colour": "red"}}, "Boot: Colour is unknown"),
        ({"Boot": {"BootSourceOverrideTarget": "Moon"}}, "BootSourceOverrideTarget"),
        ({"Actions": {"#ComputerSystem.Explode": {"target": "/"}}}, "#ComputerSystem.Explode is unknown"),
        ({"@odata.id": "/redfish/v1/Machines/1"}, "no address of ComputerSystem"),
        ({"@odata.type": "#ComputerSystem.v1_99_0.ComputerSystem"}, "v1_99_0"),
        ({"@odata.type": "#Computer.v1_0_0.Computer"}, "Computer is unknown"),
    ],
)  # fmt: skip
def test_what_dmtf_does_not_define_is_a_problem(change: dict[str, Any], problem: str) -> None:
    resources = reached(StubService(StubMachine(VirtualClock())))
    (system,) = (one for one in resources.values() if one["@odata.type"].startswith("#ComputerSystem.v"))
    (found,) = DmtfSchemas().problems(system | change)
    assert problem in found
