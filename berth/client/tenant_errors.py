"""What changes of a tenant are refused with."""

from __future__ import annotations

from berth.client.errors import Refused, Unauthenticated


class TenantInUse(Refused):
    """The tenant still holds something; `extra["users"]` counts it, by kind."""

    codes = ("tenant_in_use",)


class TenantDeleted(Refused):
    """The tenant is deleted for good."""

    codes = ("tenant_deleted",)


class LastAdminKey(Refused):
    """The tenant would have no live `admin` key left."""

    codes = ("last_admin_key",)


class AlreadyMember(Refused):
    """The user is a member of a tenant already."""

    codes = ("already_member",)


class InvitationInvalid(Unauthenticated):
    """The token of the invitation is unknown, used, revoked or expired."""

    codes = ("invitation_invalid",)


class QuotaExceeded(Refused):
    """The tenant's quota would be exceeded: `quota` names it (`gpus`, `operations`, `webhooks`, ...)."""

    codes = ("quota_exceeded",)

    @property
    def quota(self) -> str | None:
        """The name of the quota."""
        named: str | None = self.extra.get("quota")
        return named

    @property
    def limit(self) -> int | None:
        """The tenant's limit."""
        limit: int | None = self.extra.get("limit")
        return limit

    @property
    def used(self) -> int | None:
        """What counts in the quota."""
        used: int | None = self.extra.get("used")
        return used

    @property
    def gpus_used(self) -> int | None:
        """GPUs that count in the quota."""
        used: int | None = self.extra.get("gpus_used")
        return used

    @property
    def gpus_limit(self) -> int | None:
        """The tenant's quota."""
        limit: int | None = self.extra.get("gpus_limit")
        return limit
