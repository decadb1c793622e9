"""The public application as the API's own tests have it."""

from tests.support.public_api import admin, api

__all__ = ["admin", "api"]
