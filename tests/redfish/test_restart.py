"""A reset of the BMC is sent once, and believed by another reset time, or a time without answers where none is stated."""

from __future__ import annotations

import json
import math

import pytest

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess, PowerState
from node_agent.redfish.problems import (
    Busy,
    CertificateChanged,
    NotBack,
    NotSupported,
    OutcomeUnknown,
    ValueNotAllowed,
    WithoutEffect,
)
from node_agent.redfish.restart import LOGINS_REFUSED_MAX
from tests.redfish.running import commands, run
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.server import DEADLINES, certificate, served, server_context, serving
from tests.support.bmc.service import StubService

RESET = "POST .*Manager.Reset"
MANAGER = "GET /redfish/v1/Managers/BMC$"


@pytest.mark.parametrize("fault", [None, Fault.BROKEN_AFTER, Fault.NO_ANSWER_WITH_EFFECT, Fault.ERROR_WITH_EFFECT])
@pytest.mark.parametrize("states_last_reset", [True, False])
def test_a_restart_is_seen_whatever_the_command_was_answered(fault: Fault | None, states_last_reset: bool) -> None:
    async def scene() -> None:
        async with served(Options(states_last_reset=states_last_reset)) as stub:
            if fault is not None:
                stub.service.script.add(RESET, fault)
            bmc = stub.client()
            await bmc.reset_bmc()
            assert (stub.machine.restarts, commands(stub).count("Reset")) == (1, 1)
            assert json.loads(stub.service.accepted[-1][1]) == {"ResetType": "GracefulRestart"}
            assert (await bmc.power_state()).state is PowerState.OFF

    run(scene())


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Fault.LIE, WithoutEffect),
        (Fault.NO_ANSWER, OutcomeUnknown),
        (Fault.BROKEN_BEFORE, OutcomeUnknown),
        (Fault.BUSY, Busy),
    ],
)
def test_a_reset_without_effect_is_not_repeated_and_not_believed(fault: Fault, problem: type[Exception]) -> None:
    async def scene() -> None:
        async with served() as stub:
            stub.service.script.add(RESET, fault)
            with pytest.raises(problem):
                await stub.client().reset_bmc()
            assert (stub.machine.restarts, commands(stub).count("Reset")) == (0, 1)

    run(scene())


def test_connections_that_break_are_no_restart_of_a_bmc_that_states_its_last_one() -> None:
    async def scene() -> None:
        async with served() as stub:
            machine = stub.machine
            stub.service.script.add(RESET, Fault.LIE)
            machine.later(1, lambda: setattr(machine, "silent_until", stub.clock.now() + 5))
            with pytest.raises(WithoutEffect):
                await stub.client().reset_bmc()
            assert (machine.silent_until > 0, commands(stub).count("Reset")) == (True, 1)

    run(scene())


def test_a_bmc_that_does_not_come_back_is_said_to_be_gone() -> None:
    async def scene() -> None:
        async with served(Options(restart_seconds=math.inf)) as stub:
            began = stub.clock.now()
            with pytest.raises(NotBack, match="within 600 s"):
                await stub.client().reset_bmc()
            assert 600 <= stub.clock.now() - began < 700
            assert commands(stub).count("Reset") == 1

    run(scene())


def test_a_bmc_that_refuses_the_password_afterwards_is_asked_twice() -> None:
    async def scene() -> None:
        async with served() as stub:
            machine = stub.machine
            machine.options.restart_effect = lambda: machine.passwords.update(berth="default")
            with pytest.raises(NotBack, match="refuses the credentials"):
                await stub.client().reset_bmc()
            assert machine.refused_logins == LOGINS_REFUSED_MAX

    run(scene())


def test_a_bmc_that_refuses_a_login_while_it_starts_is_waited_for() -> None:
    async def scene() -> None:
        async with served() as stub:
            machine = stub.machine

            def starting() -> None:
                kept = machine.passwords.pop("berth")
                machine.later(20, lambda: machine.passwords.update(berth=kept))

            machine.options.restart_effect = starting
            await stub.client().reset_bmc()
            assert machine.refused_logins == 1

    run(scene())


def test_another_certificate_after_the_reset_gets_no_credentials() -> None:
    async def scene() -> None:
        clock = VirtualClock()
        context = server_context(1)
        service = StubService(StubMachine(clock))

        def replaced() -> None:
            other = server_context(2)
            context.sni_callback = lambda connection, name, used: setattr(connection, "context", other)

        service.machine.options.restart_effect = replaced
        async with serving(service, context, 0) as port:
            access = BmcAccess(f"https://127.0.0.1:{port}", "berth", "first-secret", certificate(1)[2])
            bmc = RedfishBmc(access, DEADLINES, quiet=True, clock=clock)
            await bmc.power_state()
            began = clock.now()
            with pytest.raises(CertificateChanged) as changed:
                await bmc.reset_bmc()
            assert changed.value.seen_sha256 == certificate(2)[2]
            assert clock.now() - began < 60
            after = service.requests[
                service.requests.index("POST /redfish/v1/Managers/BMC/Actions/Manager.Reset") + 1 :
            ]
            assert not [line for line in after if line.startswith("POST")], "no login"

    run(scene())


def test_only_a_restart_that_the_bmc_lists_is_sent() -> None:
    def manager(actions: bytes) -> bytes:
        return b'{"@odata.id": "/redfish/v1/Managers/BMC", "Id": "BMC", "Actions": {' + actions + b"}}"

    target = b'"#Manager.Reset": {"target": "/redfish/v1/Managers/BMC/Actions/Manager.Reset"'
    listed = target + b', "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}'

    async def scene() -> None:
        for actions, problem in ((listed, ValueNotAllowed), (b"", NotSupported)):
            async with served() as stub:
                stub.service.script.add(MANAGER, Fault.BODY, times=9, body=manager(actions))
                with pytest.raises(problem):
                    await stub.client().reset_bmc()
                assert "Reset" not in commands(stub)
        async with served() as stub:
            stub.service.script.add(MANAGER, Fault.BODY, times=1, body=manager(target + b"}"))
            await stub.client().reset_bmc()
            assert json.loads(stub.service.accepted[-1][1]) == {"ResetType": "ForceRestart"}

    run(scene())
