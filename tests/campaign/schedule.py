"""What will be hurt, when, how and for how long: a pure function of the seed, so that a campaign can be replayed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """How something is hurt."""

    KILL = "kill"  # SIGKILL, later started again
    PAUSE = "pause"  # SIGSTOP, later SIGCONT
    RESTART = "restart"  # a server is stopped in order, later started again
    CUT = "cut"  # a link passes nothing, later what was held back goes through
    ONE_WAY = "one_way"  # a link passes requests and no answers
    RESET = "reset"  # a link ends its connections and refuses new ones
    DELAY = "delay"  # a link is slow
    BREAK = "break"  # a node's driver fails by one of its documented switches


@dataclass(frozen=True)
class Fault:
    """One injury. Times are seconds since the campaign began; `detail` names the driver's switch."""

    at: float
    kind: FaultKind
    target: str
    seconds: float
    detail: str = ""

    @property
    def until(self) -> float:
        """When it is over."""
        return self.at + self.seconds

    def __str__(self) -> str:
        """One line for a person."""
        switch = f" ({self.detail})" if self.detail else ""
        return f"{self.at:6.1f} s  {self.kind} {self.target} for {self.seconds:.1f} s{switch}"


@dataclass(frozen=True)
class Targets:
    """The processes, servers and links that faults may hit, by name. The seed depends on their order, which the caller fixes."""

    processes: Sequence[str]
    servers: Sequence[str]
    links: Sequence[str] = ()
    nodes: Sequence[str] = ()


SECONDS: Mapping[FaultKind, tuple[float, float]] = {
    FaultKind.KILL: (0.0, 2.0),
    FaultKind.PAUSE: (0.5, 8.0),
    FaultKind.RESTART: (0.0, 1.5),
    FaultKind.CUT: (0.3, 4.0),
    FaultKind.ONE_WAY: (0.3, 4.0),
    FaultKind.RESET: (0.0, 1.5),
    FaultKind.DELAY: (0.5, 5.0),
    FaultKind.BREAK: (1.0, 5.0),
}
SWITCHES = (
    "lease_conflict", "image_download", "image_checksum", "vfio", "guest_definition", "guest_marker", "wipe_fails",
    "graceful_stop_hangs",
)  # fmt: skip
WEIGHTS: Mapping[FaultKind, int] = {
    FaultKind.KILL: 8,
    FaultKind.PAUSE: 7,
    FaultKind.RESTART: 2,
    FaultKind.CUT: 4,
    FaultKind.ONE_WAY: 3,
    FaultKind.RESET: 3,
    FaultKind.DELAY: 1,
    FaultKind.BREAK: 3,
}
QUIET_SECONDS = 2.0
"""Nothing is hurt so shortly after a campaign began, and a target has as long to itself between two injuries."""


def plan_faults(seed: int, seconds: float, targets: Targets, every_seconds: float = 2.5) -> list[Fault]:
    """Faults over `seconds`, one about every `every_seconds`, ended before the time is over. Two may overlap, but no
    target is hurt twice at once.
    """
    chance = random.Random(f"faults:{seed}")
    faults: list[Fault] = []
    busy_until: dict[str, float] = {}
    at = QUIET_SECONDS
    while (at := at + chance.uniform(0.4, 1.6) * every_seconds) < seconds:
        kind = _kind(chance, targets)
        pool = _pool(kind, targets)
        target = pool[chance.randrange(len(pool))]
        low, high = SECONDS[kind]
        length = chance.uniform(low, high)
        detail = chance.choice(SWITCHES) if kind is FaultKind.BREAK else ""
        if busy_until.get(target, 0.0) <= at and at + length <= seconds:
            busy_until[target] = at + length + QUIET_SECONDS
            faults.append(Fault(round(at, 3), kind, target, round(length, 3), detail))
    return faults


def _kind(chance: random.Random, targets: Targets) -> FaultKind:
    kinds = [kind for kind in FaultKind if _pool(kind, targets)]
    return chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]


def _pool(kind: FaultKind, targets: Targets) -> Sequence[str]:
    match kind:
        case FaultKind.KILL | FaultKind.PAUSE:
            return [*targets.processes, *targets.servers]
        case FaultKind.RESTART:
            return targets.servers
        case FaultKind.CUT | FaultKind.ONE_WAY | FaultKind.RESET | FaultKind.DELAY:
            return targets.links
        case FaultKind.BREAK:
            return targets.nodes
