"""The console of one machine for one session: found by Redfish, judged, opened by SSH, and closed for good by `forbid`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final

import structlog

from node_agent.bmc_consoles.hot_keys import Keys, read_hot_keys
from node_agent.bmc_consoles.ssh import UNACKNOWLEDGED_SECONDS_MAX, Guard, SshAccess, SshConsole, open_console
from node_agent.consoles.consoles import ConsoleRefused
from node_agent.redfish import contract
from node_agent.redfish.problems import BmcProblem, CertificateChanged, CredentialsRefused, NotSupported

log = structlog.get_logger("node_agent.bmc_consoles")

FIND_SECONDS_MAX: Final = 30.0
"""How long the BMC may take to say where its console is."""

Find = Callable[[], Awaitable[tuple[contract.SshConsole | None, str]]]
"""What the BMC announces, and the password that it accepts. Raises BmcProblem."""


CLI_PORT: Final = 22
"""Where a manager's command line is."""


def judged(found: contract.SshConsole | None, *, shared_allowed: bool) -> tuple[contract.SshConsole, Keys]:
    """The console if it may be entered, and the keys that must not reach it. Raises ConsoleRefused."""
    if found is None:
        raise ConsoleRefused("bmc_console_missing", "the BMC announces no serial console over SSH that is enabled")
    if found.shared is not False:
        is_entered = bool(found.entry_command) or (found.shared is None and found.port != CLI_PORT)
        if not (shared_allowed and is_entered):
            why = "no operator has allowed that" if is_entered else "it announces no command that enters the console"
            what = "is" if found.shared else "counts as"
            raise ConsoleRefused(
                "bmc_console_shared", f"the console {what} shared with the BMC's command line, and {why}"
            )
    keys = _keys(found.hot_keys)
    if keys is None or (found.shared is not False and not keys):
        said = "none is announced" if found.hot_keys == "" else f"{(found.hot_keys or '')[:100]!r} is not understood"
        raise ConsoleRefused("bmc_hot_key_unknown", f"the keys that leave the console must be kept from it; {said}")
    return found, keys


def _keys(display: str | None) -> Keys | None:
    """The keys of an announcement; none for an empty one, None for one that is not understood."""
    if display is None:
        return None
    return read_hot_keys(display) if display else ()


class MachineConsole:
    """Entered, it is open and its value is the descriptor. Entering it raises ConsoleRefused."""

    def __init__(
        self, host: str, username: str, host_key: str, find: Find, guard: Guard, *, shared_allowed: bool,
        login_refused: Callable[[], None] = lambda: None,
        lease_seconds: Callable[[], float] = lambda: UNACKNOWLEDGED_SECONDS_MAX,
    ) -> None:  # fmt: skip
        self._host = host
        self._username = username
        self._host_key = host_key
        self._find = find
        self._guard = guard
        self._shared_allowed = shared_allowed
        self._login_refused = login_refused
        self._lease_seconds = lease_seconds
        self._opening: asyncio.Task[SshConsole] | None = None
        self._console: SshConsole | None = None
        self._is_entered = False
        self._is_forbidden = False

    async def prepare(self, seconds_max: float) -> None:
        """Begin to open it, and wait at most so long. What came of it is for the one that enters it."""
        if not self._is_forbidden:
            await asyncio.wait({self._begun()}, timeout=seconds_max)

    def _begun(self) -> asyncio.Task[SshConsole]:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(lambda opening: opening.cancelled() or opening.exception())
        return self._opening

    async def __aenter__(self) -> int:
        """Open it; no replayed output is passed on."""
        if self._is_forbidden:
            raise ConsoleRefused("guest_ended", "a task about the machine begins")
        self._is_entered = True
        opening = self._begun()
        try:
            # Not awaited itself: `forbid` cancels it, and that is no cancellation of the session.
            await asyncio.wait({opening})
        except asyncio.CancelledError:
            opening.cancel()
            await asyncio.wait({opening})
            raise
        if opening.cancelled():
            raise ConsoleRefused("guest_ended", "a task about the machine begins")
        self._console = opening.result()
        return self._console.descriptor

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        if self._console is not None:
            await self._console.close()
            log.info("bmc_console_closed", replayed=self._console.replayed, keys_dropped=self._console.keys_dropped)

    async def forbid(self) -> None:
        """No byte passes any more when this returns, and no connection to the BMC is left or made."""
        self._is_forbidden = True
        if self._opening is None:
            return
        self._opening.cancel()
        await asyncio.wait({self._opening})
        if self._opening.cancelled() or self._opening.exception() is not None:
            return
        console = self._opening.result()
        await (console.cut() if self._is_entered else console.close())

    async def _open(self) -> SshConsole:
        access = await self._found()
        self._guard()
        try:
            console = await open_console(access)
        except ConsoleRefused as refused:
            log.warning("bmc_console_refused", host=self._host, reason=refused.reason, why=str(refused))
            if refused.reason == "bmc_credentials_refused":
                self._login_refused()
            raise
        try:
            await console.start(access.keys, self._guard)
        except BaseException:
            await console.close()
            raise
        return console

    async def _found(self) -> SshAccess:
        try:
            async with asyncio.timeout(FIND_SECONDS_MAX):
                announced, password = await self._find()
        except (CredentialsRefused, CertificateChanged) as problem:
            if isinstance(problem, CredentialsRefused):
                self._login_refused()
            raise ConsoleRefused(problem.code, problem.detail) from problem
        except NotSupported as problem:
            raise ConsoleRefused("bmc_console_missing", problem.detail) from problem
        except BmcProblem as problem:
            raise ConsoleRefused("bmc_unreachable", f"{problem.code}: {problem.detail}") from problem
        except TimeoutError as error:
            raise ConsoleRefused("bmc_unreachable", f"no answer within {FIND_SECONDS_MAX:.0f} s") from error
        console, keys = judged(announced, shared_allowed=self._shared_allowed)
        return SshAccess(
            self._host, console.port, self._username, password, self._host_key, console.entry_command, keys,
            min(UNACKNOWLEDGED_SECONDS_MAX, self._lease_seconds()),
        )  # fmt: skip
