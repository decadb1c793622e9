"""Errors about how a caller reaches the API, and how much of it one caller may use."""

from __future__ import annotations

from berth.client.errors import BerthError, Forbidden, Overloaded


class TooManyFailures(Overloaded):
    """Too many wrong keys came from this address; this one was not looked up."""

    codes = ("too_many_failures",)


class ConcurrencyLimited(Overloaded):
    """This principal has the most requests in flight that one may have in a process; this one was not done."""

    codes = ("concurrency_limited",)


class IdentityConflict(Forbidden):
    """Two keys were used as the identity of this node; its calls are refused until it enrols again."""

    codes = ("identity_conflict",)


class TooManyCertificates(BerthError):
    """The most certificates of one node are valid; it renews when one of them has ended."""

    codes = ("too_many_certificates",)


class InsecureAddress(BerthError):
    """The key would cross a network unencrypted. Nothing was sent."""

    codes = ("insecure_address",)
