"""What crosses the wire: TLS, the environment, redirects, links, sizes, odd JSON, and no secret in any text."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess, BootTarget, Deadlines, PowerAction, PowerState
from node_agent.redfish.problems import (
    PROBLEMS,
    AnswerUnreadable,
    BmcProblem,
    CertificateChanged,
    Unreachable,
    ValueNotAllowed,
)
from node_agent.redfish.tls import read_certificate
from tests.redfish.running import run
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.server import certificate, served
from tests.support.bmc.service import StubService
from tests.support.bmc.transport import StubTransport

SECRETS = ("first-secret", "second-secret", "url-secret")


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NETRC"):
        monkeypatch.setenv(name, "/nonexistent")

    async def scene() -> None:
        async with served() as stub:
            assert (await stub.client().power_state()).state is PowerState.OFF

    run(scene())


def test_a_fingerprint_is_read_without_credentials_and_any_other_is_refused() -> None:
    async def scene() -> None:
        async with served() as stub:
            assert await read_certificate(stub.access.url) == certificate(1)[2]
            assert stub.service.requests == []
            wrong = replace(stub.access, certificate_sha256="0" * 64)
            with pytest.raises(CertificateChanged):
                await RedfishBmc(wrong, clock=stub.clock).power_state()
            assert stub.service.requests == []
            colons = ":".join(certificate(1)[2][i : i + 2] for i in range(0, 64, 2)).upper()
            spelled = replace(stub.access, certificate_sha256=colons)
            assert (await RedfishBmc(spelled, clock=stub.clock).power_state()).state is PowerState.OFF

    run(scene())


def test_a_bmc_that_is_not_there_is_unreachable() -> None:
    async def scene() -> None:
        async with served() as stub:
            access = stub.access
        with pytest.raises(Unreachable):
            await RedfishBmc(access, clock=VirtualClock()).set_power(PowerAction.ON)
        with pytest.raises(Unreachable):
            await read_certificate(access.url)

    run(scene())


@pytest.mark.parametrize(
    "url",
    ["http://bmc", "https://", "https://a:b@bmc", "https://bmc/redfish", "bmc", "https://bmc:x", "https://bmc?x=1"],
)
def test_a_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ValueNotAllowed):
        RedfishBmc(BmcAccess(url, "berth", "first-secret", "0" * 64))


@pytest.mark.parametrize(
    ("location", "ok"),
    [
        ("/redfish/v1/Systems", True),
        ("https://other.example/redfish/v1/Systems", False),
        ("http://127.0.0.1/redfish/v1/Systems", False),
        ("//other.example/x", False),
        ("", False),
    ],
)
def test_redirects_stay_at_the_origin(location: str, ok: bool) -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add("GET .*/Systems$", Fault.REDIRECT, body=location.encode())
            bmc = stub.client()
            if ok:
                assert (await bmc.power_state()).state is PowerState.OFF
            else:
                with pytest.raises(BmcProblem):
                    await bmc.power_state()

    run(scene())


def test_a_redirect_to_itself_ends() -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add("GET .*/Systems$", Fault.REDIRECT, times=99, body=b"/redfish/v1/Systems")
            with pytest.raises(AnswerUnreadable, match="more than 3"):
                await stub.client().power_state()

    run(scene())


def test_a_link_to_another_origin_is_not_followed() -> None:
    async def scene() -> None:
        async with served() as stub:
            body = b'{"Members": [{"@odata.id": "https://other.example/redfish/v1/Systems/1"}]}'
            stub.service.script.add("GET .*/Systems$", Fault.BODY, body=body)
            with pytest.raises(AnswerUnreadable, match="another origin"):
                await stub.client().power_state()

    run(scene())


def test_a_collection_without_an_end_is_bounded() -> None:
    async def scene() -> None:
        async with served() as stub:
            entries = "/redfish/v1/Systems/1/LogServices/SEL/Entries"
            page = {
                "Members": [{"@odata.id": f"{entries}/1", "Id": "1", "Message": "m"}] * 10,
                "Members@odata.nextLink": entries,
            }
            stub.service.script.add(f"GET {entries}$", Fault.BODY, times=10**9, body=json.dumps(page).encode())
            log = await stub.client().read_log(1000)
            assert (len(log.entries), log.truncated) == (200, True)

    run(scene())


KEYS = st.sampled_from(["@odata.id", "Members", "Actions", "target", "Boot", "Links", "ManagedBy"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
PROPERTIES = [
    *(
        "Systems",
        "Managers",
        "Links",
        "Members",
        "Boot",
        "Actions",
        "PowerState",
        "UUID",
        "Storage",
        "VirtualMedia",
        "Image",
    ),
    *(
        "Inserted",
        "MediaTypes",
        "Accounts",
        "UserName",
        "LogServices",
        "Entries",
        "Created",
        "FirmwareInventory",
        "TaskState",
    ),
    *(
        "ProcessorSummary",
        "MemorySummary",
        "@Redfish.Settings",
        "@odata.id",
        "@odata.etag",
        "Drives",
        "EthernetInterfaces",
    ),
]
PATHS = ["", "", "/Systems/1", "/Systems", "/BMC", "/CD1", "/1"]
SHORT = Deadlines(settle_seconds=3, queue_seconds=2, task_seconds=3)


class OddService(StubService):
    """Exchanges one property of every answer, or the whole body of one."""

    odd_property: str = ""
    odd_value: Any = None
    odd_path: str = ""

    def _resource(self, data: dict[str, Any]) -> Any:
        changed: Any = data | {self.odd_property: self.odd_value} if self.odd_property in data else data
        reply = super()._resource(data)
        body = self.odd_value if self.odd_path and data["@odata.id"].endswith(self.odd_path) else changed
        reply.body = json.dumps(body).encode()
        return reply


@settings(max_examples=30, deadline=None)
@given(
    odd=st.sampled_from(PROPERTIES),
    value=JSON,
    path=st.sampled_from(["", "", "/Systems/1", "/Systems", "/BMC", "/CD1", "/1"]),
)
def test_json_of_any_shape_ends_in_a_named_error(odd: str, value: Any, path: str) -> None:
    async def scene() -> list[BmcProblem]:
        clock = VirtualClock()
        service = OddService(StubMachine(clock, Options()))
        service.odd_property, service.odd_value, service.odd_path = odd, value, path
        access = BmcAccess("https://bmc.example", "berth", "first-secret", "0" * 64)
        bmc = RedfishBmc(access, SHORT, quiet=True, clock=clock, transport=StubTransport(service))
        raised = []
        for call in (
            bmc.describe,
            lambda: bmc.insert_medium("https://deploy/medium.iso"),
            lambda: bmc.boot_once(BootTarget.CD),
            lambda: bmc.set_power(PowerAction.RESTART),
            bmc.eject_medium,
            bmc.read_log,
            lambda: bmc.update_firmware("https://deploy/bmc.bin"),
            lambda: bmc.rotate("second-secret"),
            bmc.reset_bmc,
            bmc.close,
        ):
            try:
                await call()
            except BmcProblem as problem:
                raised.append(problem)
        return raised

    assert all(type(problem) in PROBLEMS for problem in run(scene()))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100000, b"9" * 5000, b'{"Members": 7}']
)
def test_a_body_that_is_no_object_is_a_named_error(body: bytes) -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add("GET .*/Systems$", Fault.BODY, body=body)
            with pytest.raises(AnswerUnreadable):
                await stub.client().power_state()

    run(scene())


def test_no_secret_is_in_an_error_a_repr_or_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """The BMC repeats what it was sent in its error messages."""
    caplog.set_level(logging.DEBUG)

    async def scene() -> list[str]:
        image = "https://deploy/url-secret/medium.iso"
        echo = {"error": {"@Message.ExtendedInfo": [{"MessageId": f"Base.1.0 {image}", "Message": " ".join(SECRETS)}]}}
        texts = []
        async with served(Options(insert_error=echo, insert_needs=("Never",))) as stub:
            bmc = stub.client()
            texts.append(repr((bmc, stub.access)))
            for call in (bmc.insert_medium(image), bmc.rotate("second-secret")):
                stub.service.script.add("PATCH", Fault.ERROR)
                try:
                    texts.append(repr(await call))
                except BmcProblem as problem:
                    texts += [str(problem), repr(problem), problem.detail]
            stub.machine.set_image(image)
            texts.append(repr(await bmc.read_medium()))
            texts += list(stub.machine.sessions)
        return texts

    *texts, token = run(scene())
    assert len(texts) >= 5
    lines = [*texts, *(record.getMessage() for record in caplog.records)]
    assert [line for line in lines for secret in (*SECRETS, token) if secret in line] == []


def test_every_problem_has_a_code_of_its_kind_and_a_next_step() -> None:
    assert len({problem.code for problem in PROBLEMS}) == len(PROBLEMS)
    assert all(problem.code.startswith("bmc_") and problem.next_step.endswith(".") for problem in PROBLEMS)
    assert set(BmcProblem.__subclasses__()) == set(PROBLEMS)
