"""Proof of cleanup (P6; DESIGN §9), another end, verbs, fault reports, and labels that set fault switches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from berth.process.json_objects import JsonObject
from orchestrator.allocations.failures import CHANGES_NOTHING
from orchestrator.allocations.refusals import FaultReportsOpen, ReplacementInProgress, VerbInProgress
from orchestrator.allocations.states import VERB_RESULTS, AllocationState, GuestState, ReplacementOutcome, Verb
from orchestrator.allocations.subject import Subject
from orchestrator.problems import InvalidState
from orchestrator.reservations.rules import judge_window
from orchestrator.times import rfc3339

_IDEMPOTENT = frozenset({Verb.STOP, Verb.START, Verb.RESCUE})
_RUNNING = frozenset({AllocationState.REQUESTED, AllocationState.PROVISIONING, AllocationState.ACTIVE})


def is_proven(result: JsonObject) -> bool:
    """Whether a release result proves the cleanup.

    `released`, `wiped` and `leases_released` are all true, and so is `proven` of every device in its evidence.
    """
    facts = ("released", "wiped", "leases_released")
    return all(result.get(fact) is True for fact in facts) and _devices_are_proven(result.get("evidence"))


def _devices_are_proven(evidence: Any) -> bool:
    # Agents of drivers without devices send no list; anything else than a list of proven devices is no proof.
    devices = evidence.get("devices", []) if isinstance(evidence, dict) else []
    return isinstance(devices, list) and all(
        isinstance(device, dict) and device.get("proven") is True for device in devices
    )


def unproven_devices(given: Iterable[str], result: JsonObject) -> list[str]:
    """Devices that the allocation was given and that a release result, which `is_proven`, does not name."""
    evidence = result.get("evidence")
    proofs = evidence.get("devices", []) if isinstance(evidence, dict) else []
    return sorted(set(given) - {proof.get("device") for proof in proofs})


PREFIX = "berth.fault/"


def fault_labels(labels: Mapping[str, str]) -> list[str]:
    """The labels that set a fault switch, sorted."""
    return sorted(name for name in labels if name.startswith(PREFIX))


def switches_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Value by fault switch."""
    return {name.removeprefix(PREFIX): labels[name] for name in fault_labels(labels)}


@dataclass(frozen=True, slots=True)
class NewEnd:
    """The `ends_at` that a request gives an allocation; `at` None: without an end."""

    at: datetime | None


def is_given_another_end(subject: Subject, end: NewEnd, window_seconds_max: float) -> bool:
    """Whether the request gives the allocation another end, evaluated by the clock after its locks.

    Raises `InvalidState` if the allocation is being released or past its end, and `WindowInvalid` as a create does.
    """
    if end.at == subject.ends_at:
        return False
    if subject.state not in _RUNNING:
        raise InvalidState(
            f"the allocation is {subject.state}; its end can change only before its release", state=subject.state
        )
    _require_before_end(subject)
    judge_window(None, end.at, now=subject.clock, seconds_max=window_seconds_max)
    return True


def _require_before_end(subject: Subject) -> None:
    if subject.ends_at is not None and subject.ends_at <= subject.clock:
        raise InvalidState(
            f"the allocation ended at {rfc3339(subject.ends_at)} and is about to be released; create another one",
            state=subject.state,
            ends_at=rfc3339(subject.ends_at),
        )


def is_ordered(subject: Subject, verb: Verb) -> bool:
    """Whether a request for `verb` orders it, evaluated by the clock after the allocation's locks.

    False if nothing is left to do: the same verb is in progress, or the guest, which is healthy,
    has the state that `stop`, `start` or `rescue` gives it.
    Raises `InvalidState` if the allocation is not active or past its end, `VerbInProgress` if another verb is in progress.
    """
    if subject.state is not AllocationState.ACTIVE:
        raise InvalidState(
            f"the allocation is {subject.state}; its guest can be changed only while it is active", state=subject.state
        )
    _require_before_end(subject)
    if subject.guest_verb is not None:
        if subject.guest_verb == verb:
            return False
        raise VerbInProgress.of(subject.guest_verb)
    # Of a guest in an outage the stored state is no longer true.
    has_state = subject.health is None and subject.guest_state == VERB_RESULTS[verb]
    return not (verb in _IDEMPOTENT and has_state)


def state_after_failure(before: str, code: str) -> GuestState:
    """The guest's state after a verb failed with `code`: what was refused has changed nothing."""
    return GuestState(before) if code in CHANGES_NOTHING else GuestState.UNKNOWN


OPEN_REPORTS_MAX = 4
"""Fault reports of one allocation that are not closed."""
REPLACEMENT_ALLOWANCE_SECONDS = 60.0
"""Beyond the deadlines of the replacement's own waits, so that the replacement ends first."""


def require_reportable(subject: Subject, open_reports: int, *, replace: bool, replacing: bool) -> None:
    """Require that a fault of the allocation can be reported now, evaluated by the clock after its locks.

    Raises `InvalidState` if it is not active or past its end, `FaultReportsOpen`, `ReplacementInProgress`.
    """
    if subject.state is not AllocationState.ACTIVE:
        raise InvalidState(
            f"the allocation is {subject.state}; a fault can be reported only while it is active", state=subject.state
        )
    _require_before_end(subject)
    if open_reports >= OPEN_REPORTS_MAX:
        raise FaultReportsOpen.at(OPEN_REPORTS_MAX)
    if replace and replacing:
        raise ReplacementInProgress(
            "this allocation is being replaced already; report without `replace`, or release it"
        )


def outcome_of_replacement(
    old: AllocationState | None, new: AllocationState | None, *, overdue: bool
) -> ReplacementOutcome | None:
    """How a replacement ends, by the states of both allocations; None: it goes on. None as a state: it was archived."""
    if old is not AllocationState.ACTIVE:
        return ReplacementOutcome.RELEASED
    if new is AllocationState.ACTIVE:
        return ReplacementOutcome.REPLACED
    if new not in (AllocationState.REQUESTED, AllocationState.PROVISIONING):
        return ReplacementOutcome.FAILED
    return ReplacementOutcome.OVERDUE if overdue else None
