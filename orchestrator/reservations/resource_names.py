"""Names of resources: `node:<id>`, `slot:<node id>:<index>`, or a registered id (docs/reference/reservations.md). Pure.

Registered ids contain no colon, so no name has two meanings. A UUID has one accepted spelling (RFC 9562: lower case, hyphens
in four places), so no resource has two names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.reservations.refusals import ResourceNotFound

RESOURCES_MAX = 1_024
"""Resources per reservation; also a constraint in the database."""
RESOURCE_ID_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
_REGISTERED = re.compile(RESOURCE_ID_PATTERN.removesuffix("$"))
_NODE_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NODE = re.compile(f"node:({_NODE_ID})")
_SLOT = re.compile(f"slot:({_NODE_ID}):(0|[1-9][0-9]{{0,3}})")


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a node."""

    node: UUID
    index: int


ResourceName = UUID | Slot | str
"""A node, a slot, or a registered resource."""


@dataclass(frozen=True, slots=True)
class NamedResources:
    """Parsed names by kind; `names` are the names as sent, without duplicates."""

    names: tuple[str, ...]
    nodes: tuple[UUID, ...]
    slots: tuple[Slot, ...]
    registered: tuple[str, ...]


def parse_resource(name: str) -> ResourceName:
    """Parse a name. Raises `ResourceNotFound` if it has no valid form."""
    if found := _NODE.fullmatch(name):
        return UUID(found[1])
    if found := _SLOT.fullmatch(name):
        return Slot(UUID(found[1]), int(found[2]))
    if not _REGISTERED.fullmatch(name):
        raise ResourceNotFound.named([name])
    return name


def parse_resources(names: Sequence[str]) -> NamedResources:
    """Parse a bundle. Duplicate names are ignored. Raises `ResourceNotFound`."""
    distinct = tuple(dict.fromkeys(names))
    parsed = [parse_resource(name) for name in distinct]
    return NamedResources(
        distinct,
        tuple(one for one in parsed if isinstance(one, UUID)),
        tuple(one for one in parsed if isinstance(one, Slot)),
        tuple(one for one in parsed if isinstance(one, str)),
    )


def place_of(name: str) -> str:
    """The node of a name of a node or slot, otherwise the name: what requests with this name contend for. Validates nothing."""
    kind, colon, rest = name.partition(":")
    return rest.partition(":")[0] if colon else kind
