"""Nodes as operators register and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from berth.process.bounded_models import at_most
from berth.process.json_objects import JsonObject
from node_agent.attestation.wire import AttestedEnrolRequest, EnrolmentChallengeRequest
from orchestrator.catalogue.schemas import ShapeName
from orchestrator.catalogue.shapes import SLOTS_MAX, Shape
from orchestrator.http.fields import (
    UNSHOWN,
    WHOLE,
    HardwareId,
    NodeName,
    Printable,
    RegionName,
    Request,
    Sentence,
    SigningRequest,
    describe_map,
)
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.nodes.drains.schemas import NodeDrain
from orchestrator.nodes.states import AttestationPolicy, NodeAttestation, PolicySource, ShownState, SlotState

FAULTS_MAX = 32
TOKEN_SECONDS_MAX = 86_400
CERTIFICATE_PATTERN = r"^\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END CERTIFICATE-----\s*$"

ADDRESS_PATTERN = r"^[\x21-\x7e]{1,255}$"
ADDRESS = "where operators reach the machine, as they registered it; tenants log in where the node's agent reports"

FaultName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,63}$")]
FaultValue = Annotated[str, Field(pattern=rf"^[^\x00-\x1f{UNSHOWN}]*$", max_length=200)]

Faults = Annotated[
    dict[FaultName, FaultValue], Field(max_length=FAULTS_MAX, json_schema_extra=describe_map), at_most(FAULTS_MAX)
]


class CreateNode(Request):
    """A node to be: its place, its GPUs, and how many of its slots lie in the first NUMA half (default: half).

    Either `slot_count`, or `slots_from_topology`: then it has no slot until its topology is approved.
    """

    name: NodeName
    region: RegionName
    gpu_model: Printable
    shape: ShapeName
    slot_count: Annotated[int, Field(ge=1, le=SLOTS_MAX), WHOLE] | None = None
    slots_from_topology: bool = Field(False, description="its slots are made when its topology is approved")
    half_slots: Annotated[int, Field(ge=1, le=SLOTS_MAX), WHOLE] | None = None
    address: Annotated[str, Field(pattern=ADDRESS_PATTERN)] | None = Field(None, description=ADDRESS)
    faults: Faults | None = None

    @model_validator(mode="after")
    def _half_is_within_the_node(self) -> Self:
        if (self.slot_count is not None) is self.slots_from_topology:
            raise ValueError("give slot_count or slots_from_topology")
        if self.half_slots is not None and self.slot_count is None:
            raise ValueError("half_slots needs slot_count")
        if self.half_slots is not None and self.slot_count is not None and self.half_slots > self.slot_count:
            raise ValueError("half_slots must not be larger than slot_count")
        return self


class ChangeNode(Request):
    """Changes to a node; a member left out is unchanged. At least one is required."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    address: Annotated[str, Field(pattern=ADDRESS_PATTERN)] | None = Field(None, description=f"{ADDRESS}; null: none")
    half_slots: Annotated[int, Field(ge=1, le=SLOTS_MAX), WHOLE] | None = Field(
        None, description="how many of its slots lie in the first NUMA half"
    )

    @property
    def has_address(self) -> bool:
        """Whether the request gives an address, which may be null."""
        return "address" in self.model_fields_set

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.has_address and self.half_slots is None:
            raise ValueError("send address or half_slots")
        return self

    @model_serializer(mode="wrap")
    def _with_null(self, serialize: SerializerFunctionWrapHandler) -> JsonObject:
        """The content for the fingerprint of the request: a null `address` is no default, unlike an absent one."""
        document: JsonObject = serialize(self)
        return {**document, "address": self.address} if self.has_address else document


class CreateEnrolmentToken(Request):
    """Bound to this hardware id, or to whichever uses it first; valid for so many seconds."""

    hardware_id: HardwareId | None = None
    valid_seconds: Annotated[int, Field(ge=1, le=TOKEN_SECONDS_MAX), WHOLE] | None = None


class RevokeCertificates(Request):
    """Why, on the record."""

    reason: Sentence


class RetireNode(Request):
    """Why, on the record."""

    reason: Sentence


class SetAttestation(Request):
    """Whether a node proves that it has its TPM, and which TPM that is.

    `ek_sha256` or `ek_certificate` registers a TPM by its endorsement key; with neither the registered or pinned one stays,
    with `forget_tpm` the next enrolment pins one. The policy `pool` is that of the node's pool.
    """

    policy: Annotated[NodeAttestation, Field(strict=False)]
    ek_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    ek_certificate: Annotated[str, Field(max_length=10_000, pattern=CERTIFICATE_PATTERN)] | None = None
    forget_tpm: bool = False

    @model_validator(mode="after")
    def _one_tpm(self) -> Self:
        if (self.ek_sha256 is not None) + (self.ek_certificate is not None) + self.forget_tpm > 1:
            raise ValueError("only one of ek_sha256, ek_certificate and forget_tpm may be given")
        return self


class Enrol(AttestedEnrolRequest):
    """`AttestedEnrolRequest` with a hardware id that can be stored."""

    hardware_id: HardwareId
    csr_pem: SigningRequest


class ChallengeEnrolment(EnrolmentChallengeRequest):
    """`EnrolmentChallengeRequest` with a hardware id that can be stored."""

    hardware_id: HardwareId


class EnrolmentToken(BaseModel):
    """A one-time token, shown once."""

    token: str
    expires_at: datetime


class Slot(BaseModel):
    """One GPU unit: its state, its holder, and if it is `cleanup_blocked`, the code of the reason.

    `reason` says why a slot is `out_of_service`.
    """

    index: Count
    unit: Count
    numa_half: Count
    state: SlotState
    reason: str | None
    holder: UUID | None
    code: str | None


class ListedNode(BaseModel):
    """A machine of the fleet. `drained`: it is draining and nothing is left on it."""

    id: UUID
    name: str
    region: str
    gpu_model: str
    shape: Shape
    slot_count: Count = Field(description="0: its slots follow from its topology, which is not approved yet")
    half_slots: Count
    state: ShownState = Field(
        description="what operators gave it, or what keeps a registered or active node as a whole from serving"
    )
    online: bool
    free_slots: Count
    cleanup_blocked_slots: Count
    drained: bool
    epoch: BigCount
    hardware_id: str | None
    address: str | None = Field(description=ADDRESS)
    faults: dict[str, str]
    enrolled_at: datetime | None
    last_seen_at: datetime | None
    identity_conflict_at: datetime | None = Field(
        description="When two keys were used as its identity; null: never since it enrolled"
    )
    agent_version: str | None
    driver: str | None
    key_set_serial: BigCount | None = Field(description="Serial of the key set that its agent uses, as it reports")
    key_set_refusal: str | None = Field(description="Why its agent refused the last key set; null: it did not")
    attestation: AttestationPolicy = Field(description="Whether it must prove that it has its TPM")
    attestation_from: PolicySource = Field(description="Where that was set: for the node, for its pool, or nowhere")
    ek_sha256: str | None = Field(
        description="SHA-256 of the endorsement key of its TPM (SubjectPublicKeyInfo), registered or pinned; null: none"
    )
    attested_at: datetime | None = Field(description="When a certificate was last issued to it with a proof by its TPM")
    row_version: BigCount


class Node(ListedNode):
    """A node with its slots, and its drain while it is draining."""

    slots: list[Slot]
    drain: NodeDrain | None = Field(description="null: it is not draining, or an earlier version of Berth drained it")


class NodeQuery(PageQuery):
    """Which nodes."""

    state: ShownState | None = None
    region: Printable | None = None
