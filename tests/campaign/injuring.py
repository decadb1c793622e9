"""Hurts the stage by the schedule and notes what really happened and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.campaign.history import History, Injury
from tests.campaign.schedule import Fault, FaultKind
from tests.campaign.stage import Stage
from tests.proxy import Mode
from tests.support.waiting import wait_for

AT_ONCE_MAX = 8
RETRY_SECONDS_MAX = 60.0
MODES = {
    FaultKind.CUT: Mode.CUT,
    FaultKind.ONE_WAY: Mode.DROP_ANSWERS,
    FaultKind.RESET: Mode.RESET,
    FaultKind.DELAY: Mode.DELAY,
}
"""What a link does during a fault."""


class Injurer:
    """Carries a schedule out. An injury that cannot be done is noted with its reason and the rest goes on."""

    def __init__(self, stage: Stage, history: History, faults: Sequence[Fault]) -> None:
        self._stage = stage
        self._history = history
        self._faults = faults
        self._stopping = threading.Event()

    def run(self) -> None:
        """Return when every fault is over, or soon after `stop`."""
        with ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="fault") as pool:
            for fault in sorted(self._faults, key=lambda fault: fault.at):
                if self._wait_until(fault.at):
                    break
                pool.submit(self._hurt, fault)

    def stop(self) -> None:
        """No more injuries; those under way end at once."""
        self._stopping.set()

    def _wait_until(self, at: float) -> bool:
        return self._stopping.wait(max(0.0, self._history.began + at - time.monotonic()))

    def _hurt(self, fault: Fault) -> None:
        injury = Injury(fault.kind, fault.target, fault.at, time.monotonic())
        self._history.injuries.append(injury)
        try:
            self._begin_surely(fault)
            self._wait_until(fault.until)
        except Exception as error:  # noqa: BLE001 - noted and shown; the end must come in any case
            injury.error = f"{type(error).__name__}: {error}"
        finally:
            try:
                # The end counts from the moment at which the cause is taken away, not from when all is well again.
                injury.ended = time.monotonic()
                self._end_surely(fault)
            except Exception as error:  # noqa: BLE001
                injury.error = f"{type(error).__name__}: {error}"

    def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.KILL:
                self._stage.kill(fault.target)
            case FaultKind.PAUSE:
                self._stage.pause(fault.target)
            case FaultKind.RESTART:
                self._stage.stop(fault.target)
            case FaultKind.BREAK:
                self._stage.set_faults(fault.target, {fault.detail: "1"})
            case FaultKind.CUT | FaultKind.ONE_WAY | FaultKind.RESET | FaultKind.DELAY:
                self._stage.links.by_name[fault.target].set_mode(MODES[fault.kind])

    def _begin_surely(self, fault: Fault) -> None:
        """A node's switches stand in the database, which another fault may just have taken away."""
        if fault.kind is FaultKind.BREAK:
            self._surely(self._begin, fault)
        else:
            self._begin(fault)

    def _end_surely(self, fault: Fault) -> None:
        """A server that was killed may not take its first start: its own helpers are still ending."""
        self._surely(self._end, fault)

    @staticmethod
    def _surely(act: Callable[[Fault], None], fault: Fault) -> None:
        errors: list[Exception] = []

        def done() -> bool:
            try:
                act(fault)
            except Exception as error:  # noqa: BLE001 - the last one is the cause if no attempt succeeds
                errors.append(error)
                return False
            return True

        try:
            wait_for(done, f"{act.__name__} of {fault.target}", RETRY_SECONDS_MAX)
        except AssertionError:
            raise errors[-1] from None

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.KILL | FaultKind.RESTART:
                self._stage.start(fault.target)
            case FaultKind.PAUSE:
                self._stage.resume(fault.target)
            case FaultKind.BREAK:
                self._stage.set_faults(fault.target, {})
            case FaultKind.CUT | FaultKind.ONE_WAY | FaultKind.RESET | FaultKind.DELAY:
                self._stage.links.by_name[fault.target].set_mode(Mode.PASS)
