"""Starts again what died: after a pause that grows with each death, and not for ever.

The pauses are 1, 2, 4, ... 30 s by the number of deaths within the window, so a part that has lived for long is back
soon. A part that dies too often, or a server whose data are gone, is given up with the reason; the caller stops
everything then. What a part is (a server or a process of ours) is behind `Supervised`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from berth.local.processes import READY_SECONDS_MAX, ChildProcess, describe_status, last_lines
from berth.local.servers import LocalServer, ServerProblem

DEATHS_MAX = 8
WINDOW_SECONDS = 300.0
PAUSE_FIRST_SECONDS = 1.0
PAUSE_SECONDS_MAX = 30.0

Change = Literal["restarting", "starting", "blocked", "ready", "failed"]


class Supervised(Protocol):
    """Something that runs and may die."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""

    def how_it_ended(self) -> str | None:
        """None while it runs; else its end in words that go on a sentence about it, with its last log lines."""

    def why_lost(self) -> str | None:
        """Why starting it again would do harm, in such words; None if it would not."""

    def start(self) -> None:
        """Start it again. Raises `ServerProblem` if that is not possible now."""

    def answers(self) -> bool:
        """Whether it is ready."""

    def why_blocked(self) -> str | None:
        """What it waits for an operator to do, although it runs; None if it does not."""

    def kill(self) -> None:
        """End it by force."""


@dataclass(frozen=True)
class RestartPolicy:
    """How often, and how far apart. The death that makes `deaths_max` within the window is the last."""

    deaths_max: int = DEATHS_MAX
    window_seconds: float = WINDOW_SECONDS
    pause_first_seconds: float = PAUSE_FIRST_SECONDS
    pause_seconds_max: float = PAUSE_SECONDS_MAX

    def pause_seconds(self, deaths: int) -> float:
        """The pause after this many deaths within the window."""
        return float(min(self.pause_first_seconds * 2 ** (deaths - 1), self.pause_seconds_max))


@dataclass
class Watched:
    """One part: its deaths within the window, how often it was started again, and what it waits for.

    `why`: the end of its last process, or what an operator must do while it `is_blocked`.
    """

    part: Supervised
    deaths: deque[float] = field(default_factory=deque)
    restarts: int = 0
    why: str = ""
    due: float | None = None
    ready_until: float | None = None
    is_blocked: bool = False


class Supervisor:
    """Supervises parts in their order: servers before those that need them. Reports each change to `changed`."""

    def __init__(
        self,
        parts: Sequence[Supervised],
        policy: RestartPolicy,
        changed: Callable[[Watched, Change], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watched = [Watched(part) for part in parts]
        self._policy = policy
        self._changed = changed
        self._clock = clock

    def look(self) -> str | None:
        """Record deaths and start parts whose pause is over. Returns a sentence about a part that is given up, else None."""
        for watched in self._watched:
            given_up = self._look_at(watched)
            if given_up is not None:
                self._changed(watched, "failed")
                return given_up
        return None

    def _look_at(self, watched: Watched) -> str | None:
        now, part = self._clock(), watched.part
        if watched.due is not None:
            return self._start(watched) if now >= watched.due else None
        ended = part.how_it_ended()
        if ended is not None:
            return self._note_death(watched, ended)
        if watched.ready_until is not None:
            if part.answers():
                watched.ready_until, watched.is_blocked = None, False
                self._changed(watched, "ready")
            elif (why := part.why_blocked()) is not None:
                self._note_blocked(watched, why)
            elif now > watched.ready_until:
                part.kill()
                return self._note_death(watched, f"was not ready within {READY_SECONDS_MAX:.0f} s")
        return None

    def expect(self, name: str) -> None:
        """This part runs and was blocked at its start: report when it is ready."""
        for watched in self._watched:
            if watched.part.name == name:
                watched.ready_until, watched.is_blocked = self._clock() + READY_SECONDS_MAX, True

    def _note_blocked(self, watched: Watched, why: str) -> None:
        """It runs and an operator must do something first: it is not ended for not being ready."""
        watched.ready_until = self._clock() + READY_SECONDS_MAX
        if not watched.is_blocked:
            watched.is_blocked, watched.why = True, why
            self._changed(watched, "blocked")

    def _note_death(self, watched: Watched, ended: str) -> str | None:
        now, policy = self._clock(), self._policy
        watched.why = ended.splitlines()[0].partition(";")[0]
        watched.deaths.append(now)
        while watched.deaths[0] < now - policy.window_seconds:
            watched.deaths.popleft()
        deaths = len(watched.deaths)
        lost = watched.part.why_lost()
        if lost is not None:
            return f"{watched.part.name} {ended}, and cannot be started again: {lost}"
        if deaths >= policy.deaths_max:
            if deaths == 1:
                return f"{watched.part.name} {ended}"
            return f"{watched.part.name} died {deaths} times within {policy.window_seconds:.0f} s; the last time it {ended}"
        watched.ready_until, watched.is_blocked = None, False
        watched.due = now + policy.pause_seconds(deaths)
        self._changed(watched, "restarting")
        return None

    def _start(self, watched: Watched) -> str | None:
        watched.due = None
        watched.restarts += 1
        try:
            watched.part.start()
        except ServerProblem as problem:
            watched.part.kill()
            return self._note_death(watched, f"could not be started: {problem}")
        watched.ready_until = self._clock() + READY_SECONDS_MAX
        self._changed(watched, "starting")
        return None


class SupervisedServer:
    """PostgreSQL, NATS or Temporal."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    @property
    def name(self) -> str:
        """The server's name."""
        return self._server.name

    @property
    def pid(self) -> int | None:
        """The server's process."""
        return None if self._server.process is None else self._server.process.pid

    def how_it_ended(self) -> str | None:
        """Exit status and last log lines."""
        process = self._server.process
        status = None if process is None else process.poll()
        if process is not None and status is None:
            return None
        return f"{describe_status(status)}; {last_lines(self._server.log)}"

    def why_lost(self) -> str | None:
        """Whether its data are still there."""
        return self._server.why_lost()

    def start(self) -> None:
        """Start on the same data; returns when it answers."""
        self._server.start()

    def answers(self) -> bool:
        """It did when it was started."""
        return True

    def why_blocked(self) -> str | None:
        """A server waits for no operator."""
        return None

    def kill(self) -> None:
        """SIGKILL."""
        self._server.kill()


class SupervisedProcess:
    """A process of ours."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    @property
    def name(self) -> str:
        """The process's name."""
        return self._child.name

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return None if self._child.process is None else self._child.process.pid

    def how_it_ended(self) -> str | None:
        """Exit status and last log lines."""
        return None if self._child.runs() else self._child.how_it_ended()

    def why_lost(self) -> str | None:
        """All its state is elsewhere, or in a journal that it reads itself."""
        return None

    def start(self) -> None:
        """Start without waiting."""
        self._child.spawn()

    def answers(self) -> bool:
        """Whether `/ok` answers 200."""
        return self._child.is_ready()

    def why_blocked(self) -> str | None:
        """What `/ok` says."""
        return self._child.why_blocked()

    def kill(self) -> None:
        """SIGKILL, to what it started as well."""
        self._child.kill()
