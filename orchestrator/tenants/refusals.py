"""Refusals of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self
from uuid import UUID

from orchestrator.problems import Problem


class TenantInUse(Problem):
    """The tenant still holds something; `users` counts it, by kind."""

    status, code, title, business = 409, "tenant_in_use", "Tenant in use", True

    @classmethod
    def by(cls, tenant_id: UUID, users: Mapping[str, int]) -> Self:
        """The refusal for these counts; at least one is not zero."""
        named = ", ".join(f"{count} {kind}" for kind, count in users.items() if count)
        return cls(
            f"tenant {tenant_id} still has {named}; release its allocations, cancel its reservations, and delete it when their"
            " cleanup is proven",
            users=dict(users),
        )


class LastAdminKey(Problem):
    """The tenant would have no live `admin` key left, and its own principals could not make another."""

    status, code, title, business = 409, "last_admin_key", "Last admin key", True
