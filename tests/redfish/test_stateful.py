"""A model of what can be known: the client against the stub under random faults, and what it may believe.

The model sees what the client does not: which commands took effect, and which are still queued at the BMC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess, BootTarget, Deadlines, PowerAction, PowerState
from node_agent.redfish.problems import BmcProblem
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.service import StubService
from tests.support.bmc.transport import StubTransport

QUEUE_SECONDS = 10.0
DEADLINES = Deadlines(settle_seconds=25, queue_seconds=QUEUE_SECONDS, poll_seconds=1)
RESET = "POST .*ComputerSystem.Reset"
COMMANDS = f"{RESET}|POST .*Media$|PATCH"
WANTED = {PowerAction.ON: PowerState.ON, PowerAction.RESTART: PowerState.ON}
_Result = TypeVar("_Result")
command_faults = st.sampled_from([fault for fault in Fault if fault not in (Fault.BODY, Fault.REDIRECT, Fault.CHANGED)])
read_faults = st.sampled_from([Fault.BUSY, Fault.NO_ANSWER, Fault.BROKEN_BEFORE, Fault.UNAUTHORISED, Fault.ERROR])


class Client(RuleBasedStateMachine):
    """One client at a time of one BMC; a client that dies is followed by another one, which knows nothing."""

    histories = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.machine = StubMachine(self.clock, Options())
        self.service = StubService(self.machine)
        self.loop = asyncio.new_event_loop()
        self.bmc = self.new_client(quiet=True)

    def teardown(self) -> None:
        self.loop.close()
        Client.histories += 1

    def new_client(self, quiet: bool) -> RedfishBmc:
        access = BmcAccess("https://bmc.example", "berth", "first-secret", "0" * 64)
        return RedfishBmc(access, DEADLINES, quiet=quiet, clock=self.clock, transport=StubTransport(self.service))

    def call(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result | BmcProblem:
        """The result or the named error; each command was sent at most once, refusals by 401 apart."""
        self.service.accepted.clear()
        began = self.clock.now()
        try:
            result: _Result | BmcProblem = self.loop.run_until_complete(coroutine)
        except BmcProblem as problem:
            result = problem
        assert len(self.service.accepted) == len(set(self.service.accepted)), self.service.accepted
        assert self.clock.now() - began < 400
        return result

    def believed(self, state: PowerState) -> None:
        """The client called this state certain: nothing that is queued may change it."""
        self.machine.advance()
        assert self.machine.power == state
        for _, effect in sorted(self.machine.waiting, key=lambda item: item[0]):
            effect()
        self.machine.waiting.clear()
        assert self.machine.power == state, "a queued command changed a state that was believed"

    @rule(fault=command_faults, seconds=st.sampled_from([1, 4, QUEUE_SECONDS - 1]))
    def a_command_fails(self, fault: Fault, seconds: float) -> None:
        self.service.script.add(COMMANDS, fault, seconds=seconds)

    @rule(fault=read_faults, times=st.integers(1, 4))
    def reads_fail(self, fault: Fault, times: int) -> None:
        self.service.script.add("GET .*/Systems/1$", fault, times=times)

    @rule(action=st.sampled_from(PowerAction))
    def set_power(self, action: PowerAction) -> None:
        outcome = self.call(self.bmc.set_power(action))
        if not isinstance(outcome, BmcProblem):
            assert outcome.state is WANTED.get(action, PowerState.OFF)
            self.believed(outcome.state)

    @rule()
    def read_power(self) -> None:
        reading = self.call(self.bmc.power_state())
        if not isinstance(reading, BmcProblem) and reading.certain:
            self.believed(reading.state)

    @rule(state=st.sampled_from([PowerState.ON, PowerState.OFF]))
    def settle(self, state: PowerState) -> None:
        if self.call(self.bmc.settle(state, 2)) is None:
            self.believed(state)

    @rule()
    def insert(self) -> None:
        before = self.machine.effects.count("insert")
        medium = self.call(self.bmc.insert_medium("https://deploy/medium.iso"))
        assert self.machine.effects.count("insert") <= before + 1
        if not isinstance(medium, BmcProblem):
            assert medium.inserted
            assert self.machine.image is not None

    @rule()
    def eject(self) -> None:
        medium = self.call(self.bmc.eject_medium())
        if not isinstance(medium, BmcProblem):
            assert self.machine.image is None

    @rule()
    def boot_once(self) -> None:
        override = self.call(self.bmc.boot_once(BootTarget.CD))
        if not isinstance(override, BmcProblem):
            assert (self.machine.override["target"], override.once) == ("Cd", True)

    @rule(seconds=st.sampled_from([0.5, 3, QUEUE_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.machine.sessions)
    @rule()
    def the_session_ends(self) -> None:
        self.machine.sessions.clear()

    @rule()
    def the_process_dies(self) -> None:
        self.bmc = self.new_client(quiet=False)

    @invariant()
    def the_password_is_never_locked(self) -> None:
        assert self.machine.refused_logins == 0


TestClient = Client.TestCase
TestClient.settings = settings(
    max_examples=12, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.full
def test_many_histories() -> None:
    """More and longer histories than `make test` runs."""
    before = Client.histories
    run_state_machine_as_test(Client, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))
    assert Client.histories - before >= 100
