"""Hurts the stage by the schedule and notes what really happened and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.campaign.faults.acts import ACTS
from tests.campaign.history import History, Injury
from tests.campaign.schedule import Fault
from tests.campaign.stage import Stage
from tests.support.waiting import wait_for

AT_ONCE_MAX = 12
END_SECONDS_MAX = 60.0
BEGIN_SECONDS_MIN = 10.0
"""A fault that another one keeps from beginning is tried for at least so long."""


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
        act = ACTS[fault.kind](self._stage, fault)
        try:
            surely(act.begin, f"begin {fault.kind} {fault.target}", max(fault.seconds, BEGIN_SECONDS_MIN))
            self._wait_until(fault.until)
        except Exception as error:  # noqa: BLE001 - noted and shown; the end must come in any case
            injury.error = f"{type(error).__name__}: {error}"
        finally:
            try:
                # The end counts from the moment at which the cause is taken away, not from when all is well again.
                injury.ended = time.monotonic()
                surely(act.end, f"end {fault.kind} {fault.target}", END_SECONDS_MAX)
            except Exception as error:  # noqa: BLE001
                injury.error = f"{type(error).__name__}: {error}"
            self._history.observed += act.observed


def surely(act: Callable[[], None], what: str, seconds_max: float) -> None:
    """Do it, again and again for so long: it may need a server that another fault has just taken away.

    Raises what the last attempt raised.
    """
    errors: list[Exception] = []

    def done() -> bool:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - the last one is the cause if no attempt succeeds
            errors.append(error)
            return False
        return True

    try:
        wait_for(done, what, seconds_max)
    except AssertionError:
        raise errors[-1] from None
