"""Refusals of an admitted request, in words that the client can act on. Pure."""

from __future__ import annotations

from orchestrator.billing.rules import BalanceDepleted
from orchestrator.placement.admission import AdmittedUnits
from orchestrator.problems import Forbidden, Problem, QuotaExceeded, SkuUnavailable, SshKeyNotFound, UnavailableReason


def no_room(admitted: AdmittedUnits, free_gpus: int) -> SkuUnavailable:
    """No single node fits: either only fragments are free, or too few GPUs are free in total."""
    name, region, gpus = admitted.sku.name, admitted.pool.region, admitted.gpus
    if free_gpus >= gpus:
        return SkuUnavailable(
            f"{region} has at least {gpus} {name} GPUs free, but no single node has {gpus}; ask for fewer, or retry later",
            reason=UnavailableReason.ONLY_FRAGMENTS_LEFT,
        )
    return SkuUnavailable(
        f"{gpus} GPUs of {name} were requested and {free_gpus} are free in {region}; retry later or use another region",
        reason=UnavailableReason.BUSY_NOW,
    )


def no_room_in_window(wanted: AdmittedUnits) -> SkuUnavailable:
    """Too many slots are claimed at some time of the window."""
    return SkuUnavailable(
        f"too few {wanted.sku.name} GPUs in {wanted.pool.region} are free throughout this window;"
        " GET /api/v1/availability returns the earliest free window",
        reason=UnavailableReason.BUSY_IN_WINDOW,
    )


def contended() -> SkuUnavailable:
    """Nodes fit, but concurrent requests took them in every attempt."""
    return SkuUnavailable("concurrent requests took every node that fits; retry", reason=UnavailableReason.BUSY_NOW)


def quota_exceeded(gpus_used: int, gpus_limit: int) -> QuotaExceeded:
    """The request would exceed the tenant's GPU quota."""
    return QuotaExceeded(
        f"the request exceeds the tenant's quota: {gpus_used} of {gpus_limit} GPUs are in use;"
        " release GPUs or ask the operator for a higher quota",
        quota="gpus",
        limit=gpus_limit,
        used=gpus_used,
        gpus_used=gpus_used,
        gpus_limit=gpus_limit,
    )


def refusal_of_tenant(word: str) -> Problem:
    """The refusal that an SQL function names: of the tenant's SSH keys, state or balance. Raises `ValueError` for another."""
    match word:
        case "ssh_key":
            return ssh_key_missing()
        case "tenant":
            return tenant_not_active()
        case "depleted":
            return BalanceDepleted.of_tenant()
        case _:
            raise ValueError(f"{word} is no known outcome")


def ssh_key_missing() -> SshKeyNotFound:
    """An SSH key was deleted, or belongs to another tenant."""
    return SshKeyNotFound("an id in ssh_key_ids is no SSH key of this tenant; GET /api/v1/ssh-keys lists them")


def tenant_not_active() -> Forbidden:
    """The operator suspended or deleted the tenant."""
    return Forbidden("this tenant is suspended or deleted; ask the operator")
