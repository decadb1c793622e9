"""Runs a driver's plans: phases in order, each reported when it has ended. Drivers need not know of it."""

from __future__ import annotations

from functools import partial
from typing import Protocol, TypeVar

from node_agent.drivers.contract import Plan
from node_agent.protocol import ReleaseResult

Result = TypeVar("Result")


class Listener(Protocol):
    """Hears of phases. Neither call blocks or raises."""

    def completed(self, phase: str, detail: str) -> None:
        """The phase has reached its end."""

    def advanced(self, phase: str, share: float, detail: str) -> None:
        """So much of the phase is done, 0 to 1."""


class Unheard:
    """Where no one is interested."""

    def completed(self, phase: str, detail: str) -> None:
        """Not reported."""

    def advanced(self, phase: str, share: float, detail: str) -> None:
        """Not reported."""


async def perform(plan: Plan[Result], listener: Listener) -> Result:
    """Run the phases of `plan` in order and return its result. Raises what a phase raises: no later phase runs then."""
    with plan.scope():
        for phase in plan.phases:
            detail = await phase.run(partial(listener.advanced, phase.name))
            listener.completed(phase.name, detail)
        return plan.result()


def why_not_proven(result: ReleaseResult) -> str:
    """What a release did not prove, as a sentence."""
    facts = {
        "hard stopped": result.hard_stopped, "wiped": result.wiped, "leases released": result.leases_released,
    }  # fmt: skip
    said = ", ".join(f"{fact}: {'yes' if holds else 'no'}" for fact, holds in facts.items())
    problem = result.evidence.get("problem")
    return f"not proven ({said})" if problem is None else f"not proven ({said}): {problem}"
