"""Which tasks a deploy system performs: signed by the key set, for this node, deploy epoch and time, under a new fence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from node_agent.admission import time_objection
from node_agent.clock import ServerClock
from node_agent.key_set import KeySet
from node_agent.protocol import EnvelopeRejected, HandedOutTask, TaskBody, TaskType, open_envelope
from node_agent.wire.attestations import MetalAttestParameters
from node_agent.wire.deploy_tasks import (
    MetalDeployParameters,
    MetalInspectParameters,
    MetalParameters,
    MetalRescueParameters,
    MetalWipeParameters,
)

PARAMETERS: Final[Mapping[TaskType, type[MetalParameters]]] = {
    TaskType.METAL_INSPECT: MetalInspectParameters,
    TaskType.METAL_DEPLOY: MetalDeployParameters,
    TaskType.METAL_WIPE: MetalWipeParameters,
    TaskType.METAL_RESCUE: MetalRescueParameters,
    TaskType.METAL_ATTEST: MetalAttestParameters,
}


@dataclass(frozen=True)
class Trust:
    """This deploy system, and the keys that may sign its tasks."""

    node_id: UUID
    deploy_epoch: int
    key_set: KeySet


@dataclass(frozen=True)
class Admitted:
    """To be performed."""

    body: TaskBody
    parameters: MetalParameters


@dataclass(frozen=True)
class Refused:
    """To be reported as refused."""

    body: TaskBody
    detail: str


@dataclass(frozen=True)
class Untrusted:
    """Not proven to be from the control plane for this node: never answered."""

    reason: str


def admit(handed: HandedOutTask, trust: Trust, newest_fence: int, clock: ServerClock) -> Admitted | Refused | Untrusted:
    """Evaluate a task as it was handed out. `newest_fence`: of the last task. Raises LookupError before any server time."""
    limits = {key.key_id: key for key in trust.key_set.task_keys}
    try:
        body = open_envelope(handed.envelope, {name: key.key() for name, key in limits.items()})
    except EnvelopeRejected as rejected:
        return Untrusted(rejected.reason)
    key, now = limits[body.key_id], clock.now()
    if (key.not_before is not None and now < key.not_before) or (key.not_after is not None and key.not_after <= now):
        return Untrusted("key_not_valid_now")
    if body.task_id != handed.task_id:
        return Untrusted("wrong_task_id")
    if body.node_id != trust.node_id:
        return Untrusted("wrong_node")
    if (lacking := body.needs_objection(())) is not None:
        return Refused(body, lacking)
    model = PARAMETERS.get(body.type)
    if model is None:
        return Refused(body, f"a deploy system performs no {body.type}")
    try:
        parameters = model.model_validate(body.parameters)
    except ValidationError as error:
        fields = ", ".join(".".join(str(part) for part in found["loc"]) for found in error.errors())
        return Refused(body, f"its parameters are not those of {body.type}: {fields}")
    if parameters.deploy_epoch != trust.deploy_epoch:
        return Refused(
            body, f"it is for deploy epoch {parameters.deploy_epoch}; this is deploy epoch {trust.deploy_epoch}"
        )
    if body.fence <= newest_fence:
        return Refused(body, f"its fence {body.fence} is not newer than {newest_fence}")
    objection = time_objection(body, clock)
    return Admitted(body, parameters) if objection is None else Refused(body, objection)
