"""Why a create that was admitted got nothing after all, in words that a person can act on. Pure."""

from __future__ import annotations

from typing import Any

from orchestrator.billing.rules import BalanceDepleted
from orchestrator.placement.admission import AdmittedUnits
from orchestrator.problems import (
    Forbidden,
    OperationInProgress,
    Problem,
    QuotaExceeded,
    SkuUnavailable,
    SshKeyNotFound,
    UnavailableReason,
)
from orchestrator.reservations.refusals import OperationTableFull, WindowInvalid


def no_room(admitted: AdmittedUnits, free_gpus: int) -> SkuUnavailable:
    """No single node fits: because only fragments are left, or because too little is free at all."""
    name, region, gpus = admitted.sku.name, admitted.pool.region, admitted.gpus
    if free_gpus >= gpus:
        return SkuUnavailable(
            f"{region} has {name} GPUs free, but no single node has {gpus} of them; ask for fewer, or wait",
            reason=UnavailableReason.ONLY_FRAGMENTS_LEFT,
        )
    return SkuUnavailable(
        f"all {name} GPUs in {region} that could serve this are in use", reason=UnavailableReason.BUSY_NOW
    )


def no_room_in_window(wanted: AdmittedUnits) -> SkuUnavailable:
    """Somebody has a right to too many of the slots at some time of the window."""
    return SkuUnavailable(
        f"too few {wanted.sku.name} GPUs in {wanted.pool.region} are free throughout that window; availability tells when",
        reason=UnavailableReason.BUSY_IN_WINDOW,
    )


def contended() -> SkuUnavailable:
    """Nodes fit, but rivals were faster each time."""
    return SkuUnavailable(
        "every node that fits is being taken by others right now; try again", reason=UnavailableReason.BUSY_NOW
    )


def refusal_of(outcome: dict[str, Any]) -> Problem:
    """The refusal for an outcome of `place_allocations` other than created, existing, no_room, stale and lost."""
    match outcome["outcome"]:
        case "quota":
            used, limit = outcome["gpus_used"], outcome["gpus_limit"]
            return QuotaExceeded(f"{used} of {limit} GPUs are in use", gpus_used=used, gpus_limit=limit)
        case "window_over":
            return WindowInvalid("the window is over")
        case "window_too_long":
            return WindowInvalid("the window is too long; leave ends_at out for an open end")
        case "operations_full":
            return OperationTableFull("there is no room to remember another operation; nothing was begun")
        case "in_progress":
            return OperationInProgress("another request with this key is running; try again")
        case "ssh_key":
            return SshKeyNotFound("one of ssh_key_ids is not a key of this tenant")
        case "tenant":
            return Forbidden("this tenant is suspended")
        case "depleted":
            return BalanceDepleted.of_tenant()
        case word:
            raise ValueError(f"{word} is not a refusal")
