"""The public application as the API's own tests have it."""

from tests.support.public_api import admin, api, stranger

__all__ = ["admin", "api", "stranger"]
