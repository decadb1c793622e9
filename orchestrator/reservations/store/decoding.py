"""Outcomes that the SQL functions of confirming, cancelling and consuming have in common."""

from __future__ import annotations

from berth.process.json_objects import JsonMapping
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.problems import InvalidState, OperationInProgress, Problem
from orchestrator.reservations.outcomes import Missing
from orchestrator.reservations.refusals import HolderMismatch


def decode_common(outcome: JsonMapping, allowed: str) -> StoredResponse | Missing | TryAgain | Problem:
    """The outcome; `allowed` says what can be done in which state. Raises `ValueError` for an unknown word."""
    match outcome["outcome"]:
        case "existing":
            return StoredResponse.decode(outcome)
        case "missing":
            return Missing()
        case "again":
            return TryAgain()
        case "holder":
            return HolderMismatch.of_reservation()
        case "state":
            state = outcome["state"]
            return InvalidState(f"the reservation is {state}; only {allowed}", state=state)
        case "in_progress":
            return OperationInProgress.ended_without_effect()
        case word:
            raise ValueError(f"{word} is no known outcome")
