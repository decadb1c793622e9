"""Scopes of API keys: what a key may do within its role. Pure.

A scope is `<noun>:read` or `<noun>:write`, and writing includes reading. The noun of a route is its tag in the OpenAPI document,
in lower case and joined by hyphens. docs/reference/access/roles.md lists the scope of each route.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from orchestrator.tenants.refusals import ScopesExceeded

SCOPES_MAX: Final = 64
"""Most scopes of a key; there are fewer nouns than that, and the wider scope of a noun includes the other."""


class Noun(StrEnum):
    """What a scope is about. A route whose tag is not here cannot be served."""

    ALLOCATIONS = "allocations"
    RESERVATIONS = "reservations"
    RESOURCES = "resources"
    CATALOGUE = "catalogue"
    ACCOUNT = "account"
    SSH_KEYS = "ssh-keys"
    API_KEYS = "api-keys"
    MEMBERS = "members"
    USAGE = "usage"
    WEBHOOKS = "webhooks"
    AUDIT = "audit"
    LOG = "log"
    OPERATIONS = "operations"
    ADMIN_TENANTS = "admin-tenants"
    ADMIN_BALANCES = "admin-balances"
    ADMIN_API_KEYS = "admin-api-keys"
    ADMIN_CATALOGUE = "admin-catalogue"
    ADMIN_NODES = "admin-nodes"
    ADMIN_RESOURCES = "admin-resources"
    ADMIN_ALLOCATIONS = "admin-allocations"
    ADMIN_APPROVALS = "admin-approvals"
    ADMIN_MAINTENANCE = "admin-maintenance"
    ADMIN_SITES = "admin-sites"
    ADMIN_AUDIT = "admin-audit"
    ADMIN_DEAD_LETTERS = "admin-dead-letters"
    ADMIN_CONSUMERS = "admin-consumers"


class Access(StrEnum):
    """What a scope lets a key do with its noun."""

    READ = "read"
    WRITE = "write"


UNSCOPED: Final = frozenset({Noun.ACCOUNT})
"""Nouns whose routes need no scope: each key may ask what it is."""
READING_METHODS: Final = frozenset({"GET", "HEAD", "WS"})


@dataclass(frozen=True, slots=True)
class Scope:
    """What a route needs, in the order of its text."""

    noun: Noun
    access: Access

    def __str__(self) -> str:
        return f"{self.noun}:{self.access}"

    @property
    def sufficient(self) -> list[str]:
        """The scopes that would do; a key needs one of them."""
        written = str(Scope(self.noun, Access.WRITE))
        return [written] if self.access is Access.WRITE else [str(self), written]


KNOWN: Final = tuple(str(Scope(noun, access)) for noun in Noun if noun not in UNSCOPED for access in Access)
"""The scopes that a key may have."""


def noun_of(tag: str) -> Noun:
    """The noun of a route with this tag. Raises LookupError for a tag without one."""
    written = tag.lower().replace(": ", "-").replace(" ", "-")
    try:
        return Noun(written)
    except ValueError as error:
        raise LookupError(f"the tag {tag!r} has no noun of scopes; add it to orchestrator/tenants/scopes.py") from error


def scope_of(tag: str, method: str, *, writes: bool) -> Scope | None:
    """The scope that a route needs; None: none. `writes`: it changes something although it is read by its method."""
    noun = noun_of(tag)
    if noun in UNSCOPED:
        return None
    return Scope(noun, Access.READ if method in READING_METHODS and not writes else Access.WRITE)


def covers(held: Collection[str] | None, scope: str) -> bool:
    """Whether a key with these scopes (None: everything that its role permits) may do what this scope says."""
    if held is None or scope in held:
        return True
    noun, _, access = scope.partition(":")
    return access == Access.READ and f"{noun}:{Access.WRITE}" in held


def exceeding(held: Collection[str] | None, wanted: Iterable[str]) -> list[str]:
    """Which of the wanted scopes a key with these scopes does not have, in order."""
    return sorted(scope for scope in wanted if not covers(held, scope))


def require_scopes(held: Collection[str] | None, wanted: Collection[str] | None) -> None:
    """Raise `ScopesExceeded` if a caller with these scopes would make a credential of wider ones; None: everything."""
    if held is None:
        return
    if wanted is None:
        raise ScopesExceeded(
            "this API key has scopes, and would make a credential without a bound; name `scopes` that it has",
            scopes_held=sorted(held),
        )
    if beyond := exceeding(held, wanted):
        raise ScopesExceeded(
            f"this API key does not have {', '.join(beyond)}, so it makes no key that does; leave them out",
            scopes_held=sorted(held),
        )
