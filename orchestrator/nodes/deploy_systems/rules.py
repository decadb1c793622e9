"""Which permission of a deploy system counts, and for which machine. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from node_agent.protocol import TaskType
from orchestrator.nodes.deploy_systems.refusals import DeployReason
from orchestrator.nodes.states import NodeState

AUDITED_REFUSALS_MAX = 20
"""Refusals of one token that are audited; more are only answered."""
HISTORY_MAX = 20
"""Permissions that are kept of each node."""
WITHOUT_CLAIM = frozenset({NodeState.REGISTERED, NodeState.CORDONED, NodeState.DRAINING})
"""States in which no scheduler places anything on the node."""
WRITING = frozenset({TaskType.METAL_DEPLOY, TaskType.METAL_WIPE, TaskType.METAL_RESCUE})
"""What writes to disks, or lets a tenant write to them."""


class PermissionState(StrEnum):
    """The state of a permission, derived from its row and the clock."""

    PERMITTED = "permitted"
    """The token was not used yet."""
    ENROLLING = "enrolling"
    """The token was used; the issuer has not signed yet."""
    ENROLLED = "enrolled"
    STARTED = "started"
    """The deploy system has said hello."""
    REFUSED = "refused"
    """The issuer has refused the certificate."""
    EXPIRED = "expired"
    """The token or the certificate is over."""
    SUPERSEDED = "superseded"
    REVOKED = "revoked"
    HANDED_OVER = "handed_over"
    """The machine runs the rescue system of its tenant."""


@dataclass(frozen=True, slots=True)
class Permission:
    """A permission as it is stored. `clock` was read with it."""

    id: UUID
    node_id: UUID
    deploy_epoch: int
    smbios_uuid: UUID
    macs: list[str]
    tpm_required: bool
    claim_id: int | None
    certificate_seconds: int
    expires_at: datetime
    ended_by: str | None
    used_at: datetime | None
    key_sha256: bytes | None
    refusal: str | None
    serial: str | None
    not_after: datetime | None
    hello_at: datetime | None
    clock: datetime

    @property
    def state(self) -> PermissionState:
        """The state at `clock`."""
        if self.ended_by is not None:
            return PermissionState(self.ended_by)
        if self.refusal is not None:
            return PermissionState.REFUSED
        if self.not_after is not None:
            if self.not_after <= self.clock:
                return PermissionState.EXPIRED
            return PermissionState.ENROLLED if self.hello_at is None else PermissionState.STARTED
        if self.expires_at <= self.clock:
            return PermissionState.EXPIRED
        return PermissionState.PERMITTED if self.used_at is None else PermissionState.ENROLLING


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a deploy system enrols and works, and what it trusts: the same for every machine."""

    api_url: str
    ca_pem: str
    node_api_url: str
    key_set_serial: int


@dataclass(frozen=True, slots=True)
class Presented:
    """What a machine presents with its token; `key_sha256` is None when it asks for a challenge."""

    deploy_epoch: int
    smbios_uuid: UUID
    macs: Collection[str]
    key_sha256: bytes | None


def refusal_of(permission: Permission, presented: Presented) -> DeployReason | None:
    """Why the token is refused to this machine; None if it is accepted, also again with the key of its first use."""
    if presented.deploy_epoch != permission.deploy_epoch:
        return DeployReason.OTHER_EPOCH
    if permission.ended_by is not None:
        return DeployReason(permission.ended_by)
    if presented.smbios_uuid != permission.smbios_uuid or not set(permission.macs) <= set(presented.macs):
        return DeployReason.OTHER_MACHINE
    if permission.used_at is not None and presented.key_sha256 != permission.key_sha256:
        return DeployReason.USED
    if permission.state is PermissionState.EXPIRED:
        return DeployReason.EXPIRED
    return DeployReason.CERTIFICATE_REFUSED if permission.refusal is not None else None


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A locked node, as far as deploy systems are concerned. `claims`: those that occupy units now or have begun, by id,
    with the kind of their owner; `orphans`: how many allocations without a record are on it. `occupied`: those of the claims
    that occupy units now. `named`: the claim that a deploy system is to run for; None: an operator's."""

    state: NodeState
    shape: str
    epoch: int
    claims: dict[int, str]
    orphans: int
    occupied: frozenset[int]
    named: int | None

    def obstacle(self, *, writing: bool) -> DeployReason | None:
        """Why a deploy system may not run for the named claim; None if it may.

        What only reads may run in a maintenance window. What writes may run for the named claim alone. Claims that have begun
        and occupy nothing yet wait until a named claim that occupies the machine is released: they are no obstacle to it.
        """
        counting = self.occupied if self.named in self.occupied else self.claims.keys()
        others = {self.claims[claim] for claim in counting if claim != self.named}
        if self.orphans or others - (set() if writing else {"maintenance"}):
            return DeployReason.NODE_IN_USE
        if self.named is not None and self.named not in self.claims:
            return DeployReason.NODE_IN_USE
        if self.state is NodeState.RETIRED or (self.named is None and self.state not in WITHOUT_CLAIM):
            return DeployReason.NODE_STATE
        return None
