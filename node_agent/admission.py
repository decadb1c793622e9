"""Which tasks the agent takes: everything is judged here, before anything is journaled or done (P7, P10).

Two kinds of no. `Untrusted`: it was not proven that the control plane said this to this node; such a thing is logged
and counted, never answered. `Refused`: the control plane did say it to this node, and it must not be done; that is
journaled and reported as `task_refused`, so that the server does not wait for it (P9).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from node_agent.clock import ServerClock
from node_agent.journal_state import JournalState
from node_agent.protocol import (
    Credentials,
    EnvelopeRejected,
    HandedOutTask,
    ProvisionParameters,
    ReleaseParameters,
    TaskBody,
    TaskType,
    open_envelope,
)

PROVISIONS = frozenset({TaskType.VM_PROVISION, TaskType.PROVISION_USER})
RELEASES = frozenset({TaskType.VM_RELEASE, TaskType.DEPROVISION_USER})

NOT_BEFORE_TOLERANCE_SECONDS = 2.0
"""Servers behind one address differ by this much; a task is never refused for being a moment too early."""


@dataclass(frozen=True)
class Trust:
    """The node's identity and the trusted signing keys, from the newest credentials."""

    node_id: UUID
    node_epoch: int
    keys: dict[str, Ed25519PublicKey]

    @classmethod
    def of(cls, credentials: Credentials) -> Trust:
        """Raises ValueError on a malformed key: credentials come over an authenticated channel, so that is a defect."""
        keys = {
            key.key_id: Ed25519PublicKey.from_public_bytes(base64.b64decode(key.public_key, validate=True))
            for key in credentials.verifying_keys
        }
        return cls(credentials.node_id, credentials.node_epoch, keys)


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
    if body.task_id != handed.task_id:
        return Untrusted("wrong_task_id")
    if body.node_id != trust.node_id:
        return Untrusted("wrong_node")
    objection = (
        _epoch_objection(body, trust)
        or time_objection(body, clock)
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
    model = ProvisionParameters if body.type in PROVISIONS else ReleaseParameters if body.type in RELEASES else None
    if model is None:
        return None
    if body.allocation_id is None:
        return f"{body.type} names no allocation"
    try:
        model.model_validate(body.parameters)
    except ValidationError as error:
        fields = ", ".join(".".join(str(part) for part in found["loc"]) for found in error.errors())
        return f"its parameters are not those of {body.type}: {fields}"
    return None
