"""Actors, which cause changes, and principals, which call the public API. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class ActorKind(StrEnum):
    """The kind of actor that causes a change."""

    TENANT = "tenant"
    ADMIN = "admin"
    BILLING = "billing"
    WORKER = "worker"
    NODE = "node"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """The cause of a change: its kind, and its id within the kind."""

    kind: ActorKind
    id: str


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller of the public API: of a tenant, or an operator if `tenant_id` is None.

    `id` is that of its API key, or of its token's subject; `role` is a `TenantRole` or an `OperatorRole`.
    `ends_at`: its API key expires then, by this process's monotonic clock; None: it does not expire.
    `break_glass`: its API key is for emergencies, and its uses are events. `owner`: the owner of its API key, or the subject of
    its token, by which two principals are the same person; None: unknown. `subject`: of its token; None: an API key's.
    `scopes`: what its API key may do within its role (orchestrator/tenants/scopes.py); None: everything.
    `is_member`: tenant and role are those of its membership, which may have ended since they were read.
    """

    role: str
    id: UUID
    tenant_id: UUID | None
    ends_at: float | None = None
    break_glass: bool = False
    owner: str | None = None
    subject: str | None = None
    scopes: frozenset[str] | None = None
    is_member: bool = False

    @property
    def actor(self) -> Actor:
        """The principal as an actor."""
        kind = ActorKind.ADMIN if self.tenant_id is None else ActorKind.TENANT
        return Actor(kind, str(self.id))

    @property
    def scope(self) -> UUID:
        """The scope of its idempotency keys: its tenant, or for an admin the principal itself (DESIGN §6)."""
        return self.tenant_id if self.tenant_id is not None else self.id
