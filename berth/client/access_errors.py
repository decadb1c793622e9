"""Errors about how the client reaches the API."""

from __future__ import annotations

from berth.client.errors import BerthError, Overloaded


class TooManyFailures(Overloaded):
    """Too many wrong keys came from this address; this one was not looked up."""

    codes = ("too_many_failures",)


class InsecureAddress(BerthError):
    """The key would cross a network unencrypted. Nothing was sent."""

    codes = ("insecure_address",)
