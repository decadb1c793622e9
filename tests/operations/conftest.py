"""The public application as the API's own tests have it."""

from tests.api.conftest import admin, api, nobody

__all__ = ["admin", "api", "nobody"]
