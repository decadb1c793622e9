"""One console over SSH against a stub BMC that refuses, lies, hangs, floods, replays and dies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from node_agent.bmc_consoles import ssh
from node_agent.bmc_consoles.machine_console import MachineConsole, judged
from node_agent.consoles.consoles import ConsoleRefused
from node_agent.drivers.ssh import new_host_key
from node_agent.redfish import contract
from node_agent.redfish.clock import SystemClock
from node_agent.redfish.problems import BmcProblem, Busy, CertificateChanged, CredentialsRefused, NotSupported
from node_agent.site.lease import LeaseEnded
from tests.support.bmc.consoles import StubConsole, console_served
from tests.support.bmc.machine import StubMachine
from tests.support.waiting import async_wait_for

SECONDS_MAX = 30.0


class Bench:
    """A stub, and the console that a session opens at it."""

    def __init__(self, stub: StubConsole) -> None:
        self.stub = stub
        self.pinned = stub.host_key
        self.password = "first-secret"
        self.shared = False
        self.problem: BmcProblem | None = None
        self.has_lease = True
        self.refused_logins = 0
        self.lease_seconds = SECONDS_MAX

    def announced(self) -> contract.SshConsole:
        said = self.stub.document()["SSH"]
        return contract.SshConsole(
            said["Port"], said.get("ConsoleEntryCommand", ""), said.get("HotKeySequenceDisplay", ""),
            shared=said["SharedWithManagerCLI"],
        )  # fmt: skip

    async def find(self) -> tuple[contract.SshConsole | None, str]:
        if self.problem is not None:
            raise self.problem
        return self.announced(), self.password

    def guard(self) -> None:
        if not self.has_lease:
            raise LeaseEnded("over")

    def note_refused(self) -> None:
        self.refused_logins += 1

    def console(self) -> MachineConsole:
        return MachineConsole(
            "127.0.0.1", "berth", self.pinned, self.find, self.guard, shared_allowed=self.shared,
            login_refused=self.note_refused, lease_seconds=lambda: self.lease_seconds,
        )  # fmt: skip

    async def refusal(self) -> ConsoleRefused:
        with pytest.raises(ConsoleRefused) as caught:
            async with self.console():
                pass
        return caught.value


def play(scene: Callable[[Bench], Awaitable[None]], **faults: Any) -> None:
    async def whole() -> None:
        other = faults.pop("other_key", None)
        stub = StubConsole(StubMachine(SystemClock()), **faults)
        async with asyncio.timeout(SECONDS_MAX), console_served(stub, other):
            await scene(Bench(stub))

    asyncio.run(whole())


async def read_until(descriptor: int, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = await asyncio.to_thread(os.read, descriptor, 65_536)
        assert piece, data
        data += piece
    return data


async def read_end(descriptor: int) -> bytes:
    """What comes until the console has ended."""
    data = b""
    while piece := await asyncio.to_thread(os.read, descriptor, 65_536):
        data += piece
    return data


def test_bytes_pass_both_ways() -> None:
    async def scene(bench: Bench) -> None:
        async with bench.console() as descriptor:
            os.write(descriptor, b"hello\r")
            assert await read_until(descriptor, b"said hello\r\n") == b"said hello\r\n"
        assert bench.stub.entered == [None]
        assert bench.stub.logins == [True]

    play(scene)


def test_the_hot_keys_never_reach_the_bmc() -> None:
    async def scene(bench: Bench) -> None:
        bench.stub.returns_to_shell = True
        async with bench.console() as descriptor:
            os.write(descriptor, b"a~.")
            os.write(descriptor, b".reset /system1\r")
            await read_until(descriptor, b"said a~reset /system1\r\n")
        assert (bytes(bench.stub.received), bytes(bench.stub.commands)) == (b"a~reset /system1\r", b"")

    play(scene)


def test_the_end_of_the_channel_is_the_end_of_the_console() -> None:
    async def scene(bench: Bench) -> None:
        bench.stub.announced = {"HotKeySequenceDisplay": None}
        async with bench.console() as descriptor:
            os.write(descriptor, b"x\r")
            await read_until(descriptor, b"said x\r\n")
            os.write(descriptor, b"~.")
            assert await read_end(descriptor) == b""

    play(scene)


def test_a_shared_console_is_entered_by_the_announced_command_alone() -> None:
    async def scene(bench: Bench) -> None:
        bench.shared = True
        bench.stub.announced = {"SharedWithManagerCLI": True, "ConsoleEntryCommand": "console com2"}
        async with bench.console() as descriptor:
            os.write(descriptor, b"x\r")
            await read_until(descriptor, b"said x\r\n")
        assert bench.stub.entered == ["console com2"]
        assert bytes(bench.stub.received) == b"x\r", "nothing was typed to enter it"

    play(scene)


ANNOUNCED = contract.SshConsole(2200, "", "~.", shared=False)
SHARED = contract.SshConsole(22, "console com2", "^\\", shared=True)


@pytest.mark.parametrize(
    ("found", "allowed", "reason"),
    [
        (None, True, "bmc_console_missing"),
        (SHARED, False, "bmc_console_shared"),
        (contract.SshConsole(22, "", "^\\", shared=True), True, "bmc_console_shared"),
        (contract.SshConsole(22, "console com2", "", shared=True), True, "bmc_hot_key_unknown"),
        (contract.SshConsole(2200, "", "see the manual", shared=False), True, "bmc_hot_key_unknown"),
        (contract.SshConsole(2200, "", None, shared=False), True, "bmc_hot_key_unknown"),
        (contract.SshConsole(2200, "", "~.", shared=None), False, "bmc_console_shared"),
        (contract.SshConsole(2200, "console com2", "~.", shared=None), False, "bmc_console_shared"),
        (contract.SshConsole(22, "", "~.", shared=None), True, "bmc_console_shared"),
        (contract.SshConsole(2200, "", "~.", shared=True), True, "bmc_console_shared"),
        (contract.SshConsole(2200, "", "", shared=None), True, "bmc_hot_key_unknown"),
    ],
)
def test_a_console_that_may_lead_to_the_command_line_is_refused(
    found: contract.SshConsole | None, allowed: bool, reason: str
) -> None:
    with pytest.raises(ConsoleRefused) as caught:
        judged(found, shared_allowed=allowed)
    assert caught.value.reason == reason


def test_a_console_that_leads_nowhere_else_is_entered() -> None:
    assert judged(ANNOUNCED, shared_allowed=False)[0] == ANNOUNCED
    assert judged(SHARED, shared_allowed=True)[1] == (frozenset(b"\x1c"),)
    unsaid = contract.SshConsole(2200, "", "~.", shared=None)
    assert judged(unsaid, shared_allowed=True)[0] == unsaid, "an operator has found the port to be the console alone"
    assert judged(contract.SshConsole(2200, "", "", shared=False), shared_allowed=False)[1] == ()


def test_nothing_of_the_agents_home_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    for name in ("ca-bundle.crt", "config", "known_hosts", "id_ed25519"):
        (tmp_path / ".ssh" / name).write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    async def scene(bench: Bench) -> None:
        async with bench.console() as descriptor:
            os.write(descriptor, b"x\r")
            assert await read_until(descriptor, b"said x\r\n")

    play(scene)


def test_another_host_key_gets_no_password() -> None:
    async def scene(bench: Bench) -> None:
        refused = await bench.refusal()
        assert (refused.reason, "SHA256:" in str(refused)) == ("bmc_host_key_changed", True)
        assert bench.stub.logins == []

    play(scene, other_key=new_host_key()[0])


def test_a_host_key_of_another_type_gets_no_password() -> None:
    async def scene(bench: Bench) -> None:
        refused = await bench.refusal()
        assert refused.reason == "bmc_host_key_changed"
        assert bench.stub.logins == []

    play(scene, other_key=asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_private_key())


def test_a_refused_account_is_reported_once() -> None:
    async def scene(bench: Bench) -> None:
        assert (await bench.refusal()).reason == "bmc_credentials_refused"
        assert bench.refused_logins == 1
        assert bench.stub.logins == [False], "a refused password is not sent twice: it may lock the account"

    play(scene, refuses_password=True)


def test_a_second_client_is_refused_by_name() -> None:
    async def scene(bench: Bench) -> None:
        async with bench.console():
            assert (await bench.refusal()).reason == "bmc_console_refused"
        async with bench.console() as descriptor:
            os.write(descriptor, b"x\r")
            await read_until(descriptor, b"said x\r\n")

    play(scene)


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "OPEN_SECONDS_MAX", 0.5)

    async def scene(bench: Bench) -> None:
        assert (await bench.refusal()).reason == "bmc_unreachable"

    play(scene, hangs=True)


def test_a_closed_port_is_unreachable() -> None:
    async def scene(bench: Bench) -> None:
        bench.stub.port = 1
        assert (await bench.refusal()).reason == "bmc_unreachable"

    play(scene)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (CredentialsRefused("no"), "bmc_credentials_refused"),
        (CertificateChanged("other", "0" * 64), "bmc_certificate_changed"),
        (NotSupported("none"), "bmc_console_missing"),
        (Busy("later", 1.0), "bmc_unreachable"),
    ],
)
def test_what_redfish_says_names_the_refusal(problem: BmcProblem, reason: str) -> None:
    async def scene(bench: Bench) -> None:
        bench.problem = problem
        assert (await bench.refusal()).reason == reason
        assert bench.stub.logins == []
        assert bench.refused_logins == (reason == "bmc_credentials_refused")

    play(scene)


@pytest.mark.parametrize("delay", [0.0, ssh.QUIET_SECONDS * 3])
def test_what_was_printed_before_is_not_passed_on(delay: float) -> None:
    async def scene(bench: Bench) -> None:
        async with bench.console() as descriptor:
            os.write(descriptor, b"x\r")
            assert await read_until(descriptor, b"said x\r\n") == b"said x\r\n"

    play(scene, replay=b"deploy system: token 7" * 4_000, replay_delay=delay)


def test_a_console_that_dies_reads_as_ended() -> None:
    async def scene(bench: Bench) -> None:
        async with bench.console() as descriptor:
            os.write(descriptor, b"x\r")
            await read_until(descriptor, b"said x\r\n")
            bench.stub.die()
            assert await read_end(descriptor) == b""

    play(scene)


def test_a_flood_waits_at_the_bmc() -> None:
    """The channel's window and the socket hold what the session does not read, and no more."""

    async def scene(bench: Bench) -> None:
        async with bench.console() as descriptor:
            os.write(descriptor, b"print 20000000\r")
            await read_until(descriptor, b"x" * 1_000)
            (process,) = bench.stub.open
            await async_wait_for(lambda: process.channel.get_write_buffer_size() > 0, "the BMC waits")
            assert bench.stub.printed < 5_000_000
            await read_until(descriptor, b"printed\r\n")

    play(scene)


@asynccontextmanager
async def opened(bench: Bench) -> AsyncIterator[tuple[MachineConsole, int]]:
    console = bench.console()
    async with console as descriptor:
        os.write(descriptor, b"x\r")
        await read_until(descriptor, b"said x\r\n")
        yield console, descriptor


def test_a_forbidden_console_passes_no_byte_and_leaves_no_connection() -> None:
    async def scene(bench: Bench) -> None:
        async with opened(bench) as (console, descriptor):
            await console.forbid()
            bench.stub.print(b"deploy system\r\n")
            assert await read_end(descriptor) == b""
        await async_wait_for(lambda: not bench.stub.open, "the connection is gone")
        again = bench.console()
        await again.forbid()
        with pytest.raises(ConsoleRefused) as caught:
            async with again:
                pass
        assert (caught.value.reason, bench.stub.opened) == ("guest_ended", 1)

    play(scene)


def test_what_a_bmc_has_not_taken_never_reaches_it_after_the_end() -> None:
    async def scene(bench: Bench) -> None:
        async with opened(bench) as (console, descriptor):
            bench.stub.stop_reading()
            os.write(descriptor, b"y" * 32_768)
            await async_wait_for(bench.stub.has_unread, "the kernel has what was typed")
            await console.forbid()
            bench.stub.read_on()
            await async_wait_for(lambda: not bench.stub.open, "the connection is gone")
        assert bytes(bench.stub.received) == b"x\r"

    play(scene)


def test_a_bmc_that_takes_nothing_loses_the_connection_with_the_lease() -> None:
    async def scene(bench: Bench) -> None:
        bench.lease_seconds = 1.0
        async with opened(bench) as (_, descriptor):
            bench.stub.stop_reading()
            os.write(descriptor, b"y" * 32_768)
            assert await read_end(descriptor) == b""
        bench.stub.read_on()
        await async_wait_for(lambda: not bench.stub.open, "the connection is gone")
        assert bytes(bench.stub.received) == b"x\r"

    play(scene)


def test_a_console_that_is_being_opened_is_forbidden_too() -> None:
    async def scene(bench: Bench) -> None:
        console = bench.console()

        async def enter() -> None:
            async with console:
                pass

        entering = asyncio.create_task(enter())
        await async_wait_for(lambda: bench.stub.opened == 1, "it connects")
        await console.forbid()
        with pytest.raises(ConsoleRefused) as caught:
            await entering
        assert caught.value.reason == "guest_ended"

    play(scene, hangs=True)


def test_nothing_passes_after_the_lease() -> None:
    async def scene(bench: Bench) -> None:
        async with opened(bench) as (_, descriptor):
            bench.has_lease = False
            bench.stub.print(b"of the next tenant\r\n")
            assert await read_end(descriptor) == b""
        async with opened(_leased(bench)) as (_, descriptor):
            bench.has_lease = False
            os.write(descriptor, b"typed\r")
            await read_end(descriptor)
        assert b"typed" not in bench.stub.received

    play(scene)


def _leased(bench: Bench) -> Bench:
    bench.has_lease = True
    return bench
