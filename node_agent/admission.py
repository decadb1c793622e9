"""Which tasks the agent takes: everything is judged here, before anything is journaled or done (P7, P10).

Two kinds of no. `Untrusted`: it was not proven that the control plane said this to this node; such a thing is logged
and counted, never answered. `Refused`: the control plane did say it to this node, and it must not be done; that is
journaled and reported as `task_refused`, so that the server does not wait for it (P9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ValidationError

from node_agent.clock import ServerClock
from node_agent.journal_state import JournalState
from node_agent.key_set import KeySet, TaskKey
from node_agent.protocol import (
    DEPLOY_TASKS,
    OF_SITES,
    PROVISIONS,
    RELEASES,
    VERBS,
    Credentials,
    EnvelopeRejected,
    HandedOutTask,
    ProvisionParameters,
    RebuildParameters,
    ReleaseParameters,
    TaskBody,
    TaskType,
    VerbParameters,
    open_envelope,
)
from node_agent.wire.attestations import AttestParameters
from node_agent.wire.burn_in import BurnInParameters
from node_agent.wire.console import ConsoleParameters
from node_agent.wire.features import UNDERSTOOD
from node_agent.wire.gpu_reset import GpuResetParameters
from node_agent.wire.maintenance import MaintenancePluginParameters

_PARAMETERS: Mapping[TaskType, type[BaseModel]] = {
    **dict.fromkeys(PROVISIONS, ProvisionParameters),
    **dict.fromkeys(RELEASES, ReleaseParameters),
    **dict.fromkeys(VERBS - {TaskType.REBUILD}, VerbParameters),
    TaskType.REBUILD: RebuildParameters,
    TaskType.ATTEST: AttestParameters,
    TaskType.BURN_IN: BurnInParameters,
    TaskType.CONSOLE_ATTACH: ConsoleParameters,
    TaskType.GPU_RESET: GpuResetParameters,
    TaskType.MAINTENANCE_PLUGIN: MaintenancePluginParameters,
}
_OF_THE_NODE = frozenset({
    TaskType.ATTEST, TaskType.BURN_IN, TaskType.CONSOLE_ATTACH, TaskType.GPU_RESET, TaskType.MAINTENANCE_PLUGIN,
})  # fmt: skip

NOT_BEFORE_TOLERANCE_SECONDS = 2.0
"""Servers behind one address differ by this much; a task is never refused for being a moment too early."""


@dataclass(frozen=True)
class Trust:
    """The node's identity from the newest credentials, and the keys of the key set: no other source names a signing key."""

    node_id: UUID
    node_epoch: int
    keys: Mapping[str, Ed25519PublicKey]
    limits: Mapping[str, TaskKey] = field(default_factory=dict)

    @classmethod
    def of(cls, credentials: Credentials, key_set: KeySet) -> Trust:
        """The trust of a node that uses this key set."""
        limits = {key.key_id: key for key in key_set.task_keys}
        keys = {name: key.key() for name, key in limits.items()}
        return cls(credentials.node_id, credentials.node_epoch, keys, limits)

    def is_in_time(self, key_id: str, now: datetime) -> bool:
        """Whether a key of the set is valid at this time of the server."""
        key = self.limits.get(key_id)
        if key is None:
            return True
        return (key.not_before is None or key.not_before <= now) and (key.not_after is None or now < key.not_after)


@dataclass(frozen=True)
class Admitted:
    """To be journaled and carried out."""

    body: TaskBody


@dataclass(frozen=True)
class Refused:
    """To be journaled and reported as refused, for the reason in `detail`."""

    body: TaskBody
    detail: str


@dataclass(frozen=True)
class Untrusted:
    """To be counted and otherwise ignored."""

    reason: str


def admit(
    handed: HandedOutTask, trust: Trust, journal: JournalState, clock: ServerClock
) -> Admitted | Refused | Untrusted:
    """Judge a task as it was handed out. Raises LookupError if the server's time is not known yet."""
    try:
        body = open_envelope(handed.envelope, trust.keys)
    except EnvelopeRejected as rejected:
        return Untrusted(rejected.reason)
    if not trust.is_in_time(body.key_id, clock.now()):
        return Untrusted("key_not_valid_now")
    if body.task_id != handed.task_id:
        return Untrusted("wrong_task_id")
    if body.node_id != trust.node_id:
        return Untrusted("wrong_node")
    objection = (
        _epoch_objection(body, trust)
        or time_objection(body, clock)
        or body.needs_objection(UNDERSTOOD)
        or _parameters_objection(body)
        or journal.fence_objection(body)
    )
    return Admitted(body) if objection is None else Refused(body, objection)


def time_objection(body: TaskBody, clock: ServerClock) -> str | None:
    """Why `body` may not begin at this moment, or None."""
    now = clock.now()
    if now >= body.expires_at:
        return f"it expired at {body.expires_at.isoformat()}; the server's time is {now.isoformat()}"
    if now + timedelta(seconds=NOT_BEFORE_TOLERANCE_SECONDS) < body.not_before:
        return f"it is not valid before {body.not_before.isoformat()}; the server's time is {now.isoformat()}"
    return None


def _epoch_objection(body: TaskBody, trust: Trust) -> str | None:
    if body.node_epoch == trust.node_epoch:
        return None
    return f"it is for epoch {body.node_epoch} of the node, which is at {trust.node_epoch}"


def _parameters_objection(body: TaskBody) -> str | None:
    if body.type in OF_SITES:
        return f"{body.type} is for the agent of a site"
    if body.type in DEPLOY_TASKS:
        return f"{body.type} is for a deploy system"
    model = _PARAMETERS.get(body.type)
    if model is None:
        return None
    if body.allocation_id is None and body.type not in _OF_THE_NODE:
        return f"{body.type} names no allocation"
    try:
        model.model_validate(body.parameters)
    except ValidationError as error:
        fields = ", ".join(".".join(str(part) for part in found["loc"]) for found in error.errors())
        return f"its parameters are not those of {body.type}: {fields}"
    return None
