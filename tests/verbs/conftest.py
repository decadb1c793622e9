"""The public application as the API's own tests have it."""

from tests.api.conftest import admin, api

__all__ = ["admin", "api"]
