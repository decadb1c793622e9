"""Which failures of provisioning may pass by themselves (reference: Failure -> state mapping, "Workflow retries")."""

from __future__ import annotations

PROVISION_ATTEMPTS_MAX = 3
RETRY_AFTER_SECONDS = 1.0

_PASSING = frozenset({"lease_conflict"})


def may_try_again(failure_code: str | None, attempt: int) -> bool:
    """Whether a provision that failed with this code in this attempt (from 1) is worth another."""
    return failure_code in _PASSING and attempt < PROVISION_ATTEMPTS_MAX
