"""What a node and the control plane say to each other: wire types and the bytes that are signed.

This is the one module that both sides import (DESIGN §3). Tasks travel as DSSE envelopes (Dead Simple Signing
Envelope v1.0, github.com/secure-systems-lab/dsse) signed with Ed25519 (RFC 8032). All times are UTC; all durations are
seconds. Each reader ignores members that a newer version adds, in messages of either direction and in signed tasks, and counts
them; what a task must not be performed without is named in its `needs` (decision 0073). Orders to machines, statements and key
sets are closed (`Exact`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import AfterValidator, BeforeValidator, FailFast, Field, ValidationError

from berth.process.json_objects import JsonObject
from node_agent.wire.failures import FailureCode as FailureCode
from node_agent.wire.failures import TaskFailure as TaskFailure
from node_agent.wire.fields import STORABLE, Features, FromServer, Instant, Seconds, Truth, Whole, Wire, whole
from node_agent.wire.first_boot import FirstBoot
from node_agent.wire.guests import GuestReport, GuestSize, RestartPolicy
from node_agent.wire.images import LOGIN_USER_PATTERN, ImageParameters
from node_agent.wire.networks import NetworkOrder, SpanAnswer, SpanReport
from node_agent.wire.results import storable

PAYLOAD_TYPE: Final = "application/vnd.berth.task+json"
RESULT_BYTES_MAX = 64 * 1024
KNOWN_TASKS_MAX = 256
WAIT_SECONDS_MAX = 60
HELD_ALLOCATIONS_MAX = 256
SLOT_INDEX_MAX = 63
PHASES_MAX = 32


class TaskType(StrEnum):
    """The types of tasks (DESIGN §9)."""

    VM_PROVISION = "slice.vm_provision"
    VM_RELEASE = "slice.vm_release"
    PROVISION_USER = "allocation.provision_user"
    DEPROVISION_USER = "allocation.deprovision_user"
    REBOOT = "allocation.reboot"
    STOP = "allocation.stop"
    START = "allocation.start"
    REBUILD = "allocation.rebuild"
    RESCUE = "allocation.rescue"
    TOPOLOGY_DISCOVER = "slice.topology_discover"
    HEALTH_PROBE = "diag.health_probe"
    BURN_IN = "diag.burn_in"
    CONSOLE_ATTACH = "console.attach"
    GPU_RESET = "diag.gpu_reset"
    ATTEST = "diag.attest"
    MAINTENANCE_PLUGIN = "maintenance.plugin"
    METAL_INSPECT = "metal.inspect"
    METAL_DEPLOY = "metal.deploy"
    METAL_WIPE = "metal.wipe"
    METAL_RESCUE = "metal.rescue"
    METAL_ATTEST = "metal.attest"
    METAL_LOOK = "metal.look"
    METAL_ROTATE_CREDENTIALS = "metal.rotate_credentials"
    METAL_RESEAL = "metal.reseal"
    METAL_POWER_ON = "metal.power_on"
    METAL_POWER_OFF = "metal.power_off"
    METAL_POWER_RESET = "metal.power_reset"
    METAL_START_DEPLOY_SYSTEM = "metal.start_deploy_system"
    METAL_END_DEPLOY_SYSTEM = "metal.end_deploy_system"
    METAL_EJECT_MEDIUM = "metal.eject_medium"
    METAL_REACH = "metal.reach"
    METAL_RESET_BMC = "metal.reset_bmc"
    METAL_MOVE_PORTS = "metal.move_ports"
    METAL_FIRMWARE = "metal.firmware"
    METAL_CONSOLE = "metal.console"
    UNKNOWN = "unknown"
    """Any type that a newer control plane has; its tasks are refused."""


PROVISIONS: Final = frozenset({TaskType.VM_PROVISION, TaskType.PROVISION_USER})
RELEASES: Final = frozenset({TaskType.VM_RELEASE, TaskType.DEPROVISION_USER})
DEPLOY_TASKS: Final = frozenset(TaskType(f"metal.{work}") for work in ("inspect", "deploy", "wipe", "rescue", "attest"))
"""Tasks of a deploy system; a node's agent performs none of them."""
OF_SITES: Final = frozenset(kind for kind in TaskType if kind.startswith("metal.")) - DEPLOY_TASKS
"""Tasks for agents of sites; a node's agent refuses them."""
VERBS: Final = frozenset({TaskType.REBOOT, TaskType.STOP, TaskType.START, TaskType.REBUILD})
"""Verbs that a node's agent performs; `allocation.rescue` is performed by sites alone."""


class ProvisionParameters(Wire):
    """What `slice.vm_provision` and `allocation.provision_user` need. `slots` are indices within the node."""

    slots: Annotated[list[int], Field(min_length=1)]
    gpu_model: str
    image: ImageParameters
    ssh_public_keys: Annotated[list[str], Field(min_length=1)]
    user_data: str | None = None
    hostname: str
    faults: dict[str, str] = Field(default_factory=dict)
    # The default is left out: an agent of the version before refuses unknown parameters.
    restart_policy: RestartPolicy = Field(RestartPolicy.ALWAYS, exclude_if=lambda it: it is RestartPolicy.ALWAYS)
    network: NetworkOrder | None = Field(None, exclude_if=lambda it: it is None)
    guest_size: GuestSize | None = Field(None, exclude_if=lambda it: it is None)


class ReleaseParameters(Wire):
    """What `slice.vm_release` and `allocation.deprovision_user` need."""

    slots: Annotated[list[int], Field(min_length=1)]
    graceful_seconds: Seconds = 10.0
    faults: dict[str, str] = Field(default_factory=dict)


class VerbParameters(ReleaseParameters):
    """What `allocation.reboot`, `stop` and `start` need. The guest has `graceful_seconds` before it is killed."""


class RebuildParameters(ProvisionParameters):
    """What `allocation.rebuild` needs: the guest is stopped, and made anew from these parameters with a fresh disk."""

    graceful_seconds: Seconds = 10.0


_TYPES: Final = frozenset(TaskType)


def _known_type(value: Any) -> Any:
    return TaskType.UNKNOWN if isinstance(value, str) and value not in _TYPES else value


class TaskBody(Wire):
    """The signed content of a task. `parameters` is validated against the type's own model by the executor.

    `needs`: features that the agent must know to perform it (node_agent/wire/features.py); only for agents with `open_tasks`.
    """

    task_id: UUID
    type: Annotated[TaskType, BeforeValidator(_known_type)]
    node_id: UUID
    node_epoch: Whole
    allocation_id: UUID | None
    fence: Whole
    parameters: JsonObject
    not_before: datetime
    expires_at: datetime
    key_id: str
    needs: Features = Field(default_factory=list, exclude_if=lambda it: not it)

    def needs_objection(self, understood: Collection[str]) -> str | None:
        """Why an agent that knows these features must not perform it: the first that it lacks; None if it may."""
        lacking = sorted(set(self.needs) - set(understood))
        if self.type is TaskType.UNKNOWN:
            return "its type is not known to this agent; upgrade the agent"
        return f"it needs {lacking[0]}, which this agent does not know; upgrade the agent" if lacking else None


class Signature(Wire):
    """One DSSE signature: base64 over the pre-authentication encoding."""

    keyid: str
    sig: str


class Envelope(Wire):
    """A DSSE envelope around one `TaskBody`."""

    payloadType: Literal["application/vnd.berth.task+json"] = PAYLOAD_TYPE  # noqa: N815 - the standard's name
    payload: str
    signatures: Annotated[list[Signature], Field(min_length=1, max_length=4)]


class EnvelopeRejected(Exception):
    """The envelope must not be acted on; `reason` is one of the stable words below."""

    def __init__(self, reason: Literal["unknown_key", "bad_signature", "malformed"]) -> None:
        super().__init__(reason)
        self.reason = reason


class HandedOutTask(FromServer):
    """A task as the server hands it out. The id is for bookkeeping; only what is inside the envelope is trusted."""

    task_id: UUID
    envelope: Envelope


class WaitAnswer(FromServer):
    """Answer of `GET /node/v1/tasks/wait`: new tasks, and dispatched ones the agent did not say it had journaled."""

    tasks: list[HandedOutTask]
    server_time: datetime


class Connection(Wire):
    """Where the tenant logs in.

    A tenant's programs put these into command lines and files of SSH, so each is no more than what it is there: a name
    or an address, a number, a login name (as useradd(8) has them), one public key of OpenSSH's format (sshd(8)).
    """

    host: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9:][A-Za-z0-9.:_-]*$")]
    port: Annotated[int, Field(strict=True, ge=1, le=65535), BeforeValidator(whole)]
    user: Annotated[str, Field(pattern=LOGIN_USER_PATTERN)]
    host_key: Annotated[str, Field(max_length=4096, pattern=r"^[a-z0-9][a-z0-9@.-]* [A-Za-z0-9+/]+={0,2}$")]


class ProvisionResult(Wire):
    """Proof that the allocation is usable."""

    connection: Connection
    image_sha256: str
    evidence: JsonObject = Field(default_factory=dict)


class ReleaseResult(Wire):
    """The four facts of DESIGN §9 plus evidence per item. `released` holds only if wiped and leases_released hold.

    `wipe_statement`: the same in the node's signature, a `StatementEnvelope` (node_agent/wiping/statement.py).
    """

    released: Truth
    hard_stopped: Truth
    wiped: Truth
    leases_released: Truth
    evidence: JsonObject = Field(default_factory=dict)
    wipe_statement: JsonObject | None = None


class VerbResult(Wire):
    """How to log in after a verb; None after `allocation.stop`."""

    connection: Connection | None
    evidence: JsonObject = Field(default_factory=dict)


class ResultReport(Wire):
    """Body of `POST /node/v1/tasks/{id}/result`. Exactly one of `result` and `failure` is set."""

    fence: Whole
    outcome: Literal["completed", "failed"]
    result: Annotated[JsonObject, AfterValidator(storable)] | None = None
    failure: TaskFailure | None = None


class ResultAnswer(FromServer):
    """`applied` is false with reason `superseded` when the task no longer counts, `already_applied` on repetition."""

    applied: bool
    reason: Literal["superseded", "already_applied"] | None = None


class Phase(Wire):
    """One phase that a running task has completed, `seconds_ago` by the node's monotonic clock."""

    phase: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]{0,63}$")]
    detail: Annotated[str, Field(max_length=500, pattern=STORABLE)] = ""
    seconds_ago: Annotated[float, Field(strict=True, ge=0, le=86_400)] = 0.0


class ProgressReport(Wire):
    """Body of `POST /node/v1/tasks/{id}/progress`: phases of a running task, in the order in which they ended."""

    fence: Whole
    phases: Annotated[list[Phase], Field(min_length=1, max_length=PHASES_MAX)]


class HeldAllocation(Wire):
    """One allocation of a node's inventory: something of it is there. `slots` is empty and `fence` absent where nothing
    on the node says which. `state` is absent for a guest on its way up or down."""

    allocation_id: UUID
    slots: Annotated[
        list[Annotated[int, Field(strict=True, ge=0, le=SLOT_INDEX_MAX), BeforeValidator(whole)]],
        Field(max_length=SLOT_INDEX_MAX + 1),
    ]
    fence: Whole | None = None
    state: GuestReport | None = None
    first_boot: FirstBoot | None = None


class HeldInventory(Wire):
    """Everything that a node holds, nothing left out: what is not named here is not there.

    `gathered_after` is the `server_time` of a heartbeat's answer that the agent had before it looked: what it says was
    so later than that, by the database's clock. An agent that has not finished its start-up sends no inventory.
    """

    gathered_after: Instant
    allocations: Annotated[list[HeldAllocation], Field(max_length=HELD_ALLOCATIONS_MAX), FailFast()]


class Heartbeat(Wire):
    """Body of `POST /node/v1/heartbeat`: the agent's state and the allocations that the node holds.

    `agent_run` is drawn at the agent's start: after another one the node is discovered again. `features`: what agents of
    earlier versions lack. `span`: of agents that connect tenant networks.
    """

    agent_version: Annotated[str, Field(max_length=64, pattern=STORABLE)]
    driver: Annotated[str, Field(max_length=32, pattern=STORABLE)]
    allocations: Annotated[list[UUID], Field(max_length=HELD_ALLOCATIONS_MAX), FailFast()]
    inventory: HeldInventory | None = None
    journal_entries: Whole = 0
    key_set_serial: Whole | None = None
    key_set_refusal: Annotated[str, Field(max_length=32, pattern=r"^[a-z_]+$")] | None = None
    agent_run: UUID | None = None
    features: Features = Field(default_factory=list)
    span: SpanReport | None = None


class HeartbeatAnswer(FromServer):
    """The server's clock, which the agent uses to judge expiry together with its own monotonic clock; the key set it has.

    `span`: for agents that connect tenant networks.
    """

    server_time: datetime
    node_state: str
    key_set_serial: Whole | None = None
    span: SpanAnswer | None = None


class EnrolRequest(Wire):
    """Body of `POST /api/v1/nodes/enroll` on the public listener. `csr_pem` is a PKCS#10 request (RFC 2986)."""

    token: Annotated[str, Field(min_length=16, max_length=200)]
    hardware_id: Annotated[str, Field(min_length=1, max_length=200)]
    csr_pem: Annotated[str, Field(max_length=10_000)]


class CertificateRequest(Wire):
    """Body of `POST /node/v1/certificate`: renewal, authenticated by the certificate still valid."""

    csr_pem: Annotated[str, Field(max_length=10_000)]


class VerifyingKey(FromServer):
    """A public key that tasks may be signed with, for agents of the version before: raw Ed25519, base64."""

    key_id: str
    public_key: str


class Credentials(FromServer):
    """Answer of enrolment and renewal: the node's id and epoch, its certificate, and the key set (`KeySetEnvelope`)."""

    node_id: UUID
    node_epoch: Whole
    certificate_pem: str
    ca_pem: str
    node_api_url: str
    verifying_keys: list[VerifyingKey]
    key_set: JsonObject | None = None
    server_time: datetime


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """The exact bytes that are signed (DSSE v1, section "Signature Definition")."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_task(body: TaskBody, key: Ed25519PrivateKey) -> Envelope:
    """Wrap and sign `body`. The key id inside the body and on the signature are the same."""
    payload = body.model_dump_json().encode()
    signature = key.sign(pre_authentication_encoding(PAYLOAD_TYPE, payload))
    return Envelope(
        payload=base64.b64encode(payload).decode(),
        signatures=[Signature(keyid=body.key_id, sig=base64.b64encode(signature).decode())],
    )


def open_envelope(envelope: Envelope, trusted: Mapping[str, Ed25519PublicKey]) -> TaskBody:
    """Return the signed body, or raise `EnvelopeRejected`. The content is parsed only after its signature held."""
    known = [s for s in envelope.signatures if s.keyid in trusted]
    if not known:
        raise EnvelopeRejected("unknown_key")
    try:
        payload = base64.b64decode(envelope.payload, validate=True)
        signed = pre_authentication_encoding(envelope.payloadType, payload)
        trusted[known[0].keyid].verify(base64.b64decode(known[0].sig, validate=True), signed)
    except (InvalidSignature, ValueError) as error:
        raise EnvelopeRejected("bad_signature") from error
    try:
        body = TaskBody.model_validate(json.loads(payload))
    except (ValidationError, ValueError, RecursionError) as error:
        raise EnvelopeRejected("malformed") from error
    if body.key_id != known[0].keyid:
        raise EnvelopeRejected("bad_signature")
    return body
