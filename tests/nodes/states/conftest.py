"""The whole public application over a real PostgreSQL, in this process."""

from tests.support.public_api import admin, api, place, stranger, tenant

__all__ = ["admin", "api", "place", "stranger", "tenant"]
