"""What changes of a tenant are refused with."""

from __future__ import annotations

from berth.client.errors import Refused


class TenantInUse(Refused):
    """The tenant still holds something; `extra["users"]` counts it, by kind."""

    codes = ("tenant_in_use",)


class TenantDeleted(Refused):
    """The tenant is deleted for good."""

    codes = ("tenant_deleted",)
