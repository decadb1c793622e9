"""The public application as the API's own tests have it, and a process of it to listen to."""

from tests.support.listeners import listener
from tests.support.public_api import admin, api, stranger

__all__ = ["admin", "api", "listener", "stranger"]
