"""How soon all is well again after a fault: from its end to the first read that shows active an allocation created after it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.campaign.faults.catalogue import budget_of, sort_of
from tests.campaign.history import History, Injury, Outcome


@dataclass(frozen=True)
class Recovery:
    """After one fault. `seconds` is None where no create became active after it any more.

    `undisturbed_seconds` leaves out the time within it that another fault lasted. `watched_seconds`: how long clients went on
    creating after the fault.
    """

    fault: str
    target: str
    seconds: float | None
    undisturbed_seconds: float | None
    watched_seconds: float
    budget_seconds: float

    @property
    def late(self) -> bool:
        """Whether the budget was exceeded, as far as clients watched."""
        if self.undisturbed_seconds is None:
            return self.watched_seconds > self.budget_seconds
        return self.undisturbed_seconds > self.budget_seconds


def recoveries(history: History) -> list[Recovery]:
    """Of every fault that is over, in the order in which they began."""
    created_last = max((a.began for a in history.attempts if a.kind == "create"), default=history.began)
    found = []
    for injury in history.injuries:
        if injury.ended is None:
            continue
        kind, sort = injury.kind, sort_of(injury.kind, injury.target)
        seconds = recovery_seconds(history, injury)
        others = [other for other in history.injuries if other is not injury]
        undisturbed = None if seconds is None else seconds - _covered(others, injury.ended, injury.ended + seconds)
        watched = max(0.0, created_last - injury.ended)
        watched -= _covered(others, injury.ended, injury.ended + watched)
        found.append(Recovery(f"{kind} {sort}", injury.target, seconds, undisturbed, watched, budget_of(kind, sort)))
    return found


def recovery_seconds(history: History, injury: Injury) -> float | None:
    """From the end of the fault to the first look that shows active an allocation whose create began after it."""
    assert injury.ended is not None, "only faults that are over have a recovery"
    created = {
        attempt.allocation_id
        for attempt in history.attempts
        if attempt.kind == "create" and attempt.began >= injury.ended and attempt.outcome is Outcome.DONE
    }
    told = [sight.told for sight in history.sights if sight.state == "active" and sight.allocation_id in created]
    return min(told) - injury.ended if told else None


def _covered(injuries: Iterable[Injury], since: float, until: float) -> float:
    """How much of this time at least one of the faults lasted."""
    seconds, reached = 0.0, since
    for injury in sorted(injuries, key=lambda injury: injury.began):
        ended = until if injury.ended is None else min(injury.ended, until)
        seconds += max(0.0, ended - max(injury.began, reached))
        reached = max(reached, ended)
    return seconds


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def by_class(found: Iterable[Recovery]) -> list[str]:
    """A line for each class of fault: how many, p50, p99 and maximum without other faults' time, the budget."""
    classes: dict[str, list[Recovery]] = defaultdict(list)
    for recovery in found:
        classes[recovery.fault].append(recovery)
    lines = []
    for name, members in sorted(classes.items()):
        measured = [r.undisturbed_seconds for r in members if r.undisturbed_seconds is not None]
        times = (
            f"p50 {quantile(measured, 0.5):.1f} s, p99 {quantile(measured, 0.99):.1f} s, max {max(measured):.1f} s"
            if measured
            else "not measured"
        )
        late = sum(recovery.late for recovery in members)
        lines.append(
            f"{name}: {len(members)}, {times}, budget {members[0].budget_seconds:.0f} s"
            + (f", LATE {late}" if late else "")
        )
    return lines
