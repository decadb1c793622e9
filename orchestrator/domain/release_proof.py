"""What counts as proof that nothing of a tenant is left on its units (P6; DESIGN §9)."""

from __future__ import annotations

from typing import Any


def is_proven(result: dict[str, Any]) -> bool:
    """Released, wiped and leases released, each stated as true. How the guest was stopped does not matter."""
    return result.get("released") is True and result.get("wiped") is True and result.get("leases_released") is True
