"""Refusals of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self
from uuid import UUID

from orchestrator.problems import Forbidden, Problem


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


class AlreadyMember(Problem):
    """The user is a member of a tenant already, and of one tenant at most."""

    status, code, title, business = 409, "already_member", "Already a member", True


class InvitationInvalid(Problem):
    """The token of an invitation is unknown, used, revoked or expired, or its tenant is not active; one answer for all."""

    status, code, title = 401, "invitation_invalid", "Invitation invalid"


class ScopeRequired(Forbidden):
    """The scopes of the caller's key do not cover this; one of `scopes_required` would."""

    code, title = "scope_required", "Scope required"

    @classmethod
    def of(cls, sufficient: list[str]) -> Self:
        """The refusal of a request that needs one of these scopes."""
        return cls(
            f"this needs the scope {' or '.join(sufficient)}, and this API key does not have it; use another key",
            scopes_required=sufficient,
        )


class ScopesExceeded(Forbidden):
    """A key with scopes would make a credential that may do more than itself; `scopes_held` are its scopes."""

    code, title = "scopes_exceeded", "Scopes exceeded"
