"""Which slots a burn-in tests, and which report is a pass. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from node_agent.wire.burn_in import BurnInReport
from orchestrator.problems import InvalidState, NotFound

REQUEST_SECONDS_MAX = 900.0
"""How long a request waits for the worker and the node before its task is issued."""
REASON_LENGTH_MAX = 300
REQUIRED_PARTS: Final = ("memory", "disk", "cpu")
SOURCES: Final = ("probe", "fault_report")
"""Quarantines that end after a burn-in; those of operators end by their word."""

ReturnPolicy = Literal["person", "automatic"]


class BurnInOutcome(StrEnum):
    """The outcome of a burn-in: `faulty` found a fault, `failed` proved nothing."""

    PASSED = "passed"
    FAULTY = "faulty"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A slot of a locked node."""

    slot_index: int
    quarantined: bool
    occupied: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The slots under test. `shared`: allocations are on others."""

    slots: tuple[int, ...]
    shared: bool


def plan(found: Sequence[SlotUse], wanted: Sequence[int] | None) -> Plan | None:
    """What can be tested of the slots wanted, or of all: those in quarantine without an allocation; None if none can."""
    chosen = tuple(
        slot.slot_index
        for slot in found
        if slot.quarantined and not slot.occupied and (wanted is None or slot.slot_index in wanted)
    )
    return Plan(chosen, any(slot.occupied for slot in found)) if chosen else None


def refusal(found: Sequence[SlotUse], wanted: int | None) -> InvalidState | NotFound:
    """Why nothing can be tested of the slot, or of the node."""
    slot = next((slot for slot in found if slot.slot_index == wanted), None)
    if wanted is not None and slot is None:
        return NotFound(f"the node has no slot {wanted}")
    if slot is not None and slot.quarantined:
        return InvalidState(f"an allocation is on slot {wanted}; a burn-in follows its release", state="occupied")
    if wanted is not None:
        return InvalidState(f"slot {wanted} is not in quarantine; take it out of service first", state="in_service")
    return InvalidState(
        "no slot of the node is in quarantine without an allocation on it; a burn-in tests no other", state="in_service"
    )


def judge(report: BurnInReport) -> tuple[BurnInOutcome, str | None]:
    """Whether the report is a pass, and otherwise why not. What was not tested is no pass."""
    faults = list(_with_verdict(report, "fault"))
    if faults:
        return BurnInOutcome.FAULTY, _sentence(faults)
    tested = {part.name for part in report.parts}
    missing = [f"{name} was not tested" for name in REQUIRED_PARTS if name not in tested]
    unproven = [*missing, *_with_verdict(report, "unknown")]
    if unproven:
        return BurnInOutcome.FAILED, _sentence(unproven)
    return BurnInOutcome.PASSED, None


def _with_verdict(report: BurnInReport, verdict: str) -> Iterator[str]:
    for part in report.parts:
        if part.verdict == verdict:
            yield f"{part.name}: {part.evidence or verdict}"
    for plugin in report.plugins or ():
        if plugin.verdict == verdict:
            yield f"plugin {plugin.name}: {plugin.failure or plugin.evidence or verdict}"


def _sentence(reasons: Sequence[str]) -> str:
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return reasons[0][:REASON_LENGTH_MAX] + more
