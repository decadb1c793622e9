"""Errors about how a caller reaches the API and proves its identity."""

from __future__ import annotations

from berth.client.errors import BerthError, Forbidden, Overloaded, Unavailable


class TooManyFailures(Overloaded):
    """Too many wrong keys came from this address; this one was not looked up."""

    codes = ("too_many_failures",)


class RoleRequired(Forbidden):
    """The role of this key or token does not allow the request; `extra["roles_required"]` lists the roles that do."""

    codes = ("role_required",)


class ScopeRequired(Forbidden):
    """The scopes of this API key do not cover the request; one of `extra["scopes_required"]` would."""

    codes = ("scope_required",)


class ScopesExceeded(Forbidden):
    """An API key with scopes cannot make a credential that may do more; `extra["scopes_held"]` are its scopes."""

    codes = ("scopes_exceeded",)


class IdentityConflict(Forbidden):
    """Two keys were used as the identity of this node; its calls are refused until it enrols again."""

    codes = ("identity_conflict",)


class AttestationRequired(Forbidden):
    """This node must prove that it has its TPM, and the request did not."""

    codes = ("attestation_required",)


class AttestationRefused(Forbidden):
    """The answer of a TPM does not prove that it is the node's; `extra["reason"]` is one word."""

    codes = ("attestation_refused",)


class DriverRefused(BerthError):
    """The driver of this node is not allowed, or not that of its pool."""

    codes = ("driver_refused",)


class TooManyCertificates(BerthError):
    """The most certificates of one node are valid; it renews when one of them has ended."""

    codes = ("too_many_certificates",)


class InsecureAddress(BerthError):
    """The key would cross a network unencrypted. Nothing was sent."""

    codes = ("insecure_address",)


class IssuerUnavailable(Unavailable):
    """The server cannot fetch the issuer's keys, so it cannot verify the token."""

    codes = ("issuer_unavailable",)
