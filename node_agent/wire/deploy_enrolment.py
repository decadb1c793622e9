"""What a deploy system and the control plane send each other: enrolment, hello, results of tasks.

On the public listener, where no client certificate is needed:

    POST /api/v1/deploy-systems/enroll/challenge   DeployChallengeRequest -> AttestationChallenge
    POST /api/v1/deploy-systems/enroll             DeployEnrolRequest     -> DeployCredentials

On the node listener, with the certificate of the enrolment:

    POST /deploy/v1/hello                DeployHello        -> DeployHelloAnswer
    GET  /deploy/v1/tasks/wait                              -> WaitAnswer
    POST /deploy/v1/tasks/{id}/result    DeployResultReport -> ResultAnswer

The certificate names `spiffe://<trust domain>/node/<node id>/deploy/<deploy epoch>` and lasts minutes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import FailFast, Field, field_validator, model_validator

from berth.process.json_objects import JsonObject
from node_agent.attestation.wire import Attestation, TpmKeys
from node_agent.wire.deploy_medium import DeployEpoch, DeployToken, Mac
from node_agent.wire.deploy_tasks import DeployFailureCode
from node_agent.wire.fields import STORABLE, FromServer, Instant, Seconds, Truth, Whole, Wire
from node_agent.wire.results import storable
from node_agent.wire.topology import Text

MACS_MAX: Final = 64
SMBIOS_UUID: Final = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

SmbiosUuid = Annotated[str, Field(pattern=SMBIOS_UUID)]
"""As `/sys/class/dmi/id/product_uuid` has it, in lower case."""


class MachineProof(Wire):
    """The machine as its firmware and kernel name it: the SMBIOS UUID, and the MACs of its network ports."""

    smbios_uuid: SmbiosUuid
    macs: Annotated[list[Mac], Field(min_length=1, max_length=MACS_MAX), FailFast()]


class DeployChallengeRequest(Wire):
    """Body of `POST /deploy/v1/enroll/challenge`: the token that will be used, the machine, and its TPM."""

    token: DeployToken
    deploy_epoch: DeployEpoch
    machine: MachineProof
    tpm: TpmKeys


class DeployEnrolRequest(Wire):
    """Body of `POST /deploy/v1/enroll`. `csr_pem` is a PKCS#10 request (RFC 2986) for a key that exists in memory only."""

    token: DeployToken
    deploy_epoch: DeployEpoch
    machine: MachineProof
    csr_pem: Annotated[str, Field(max_length=10_000)]
    attestation: Attestation | None = None


class DeployCredentials(FromServer):
    """Answer of enrolment. `key_set` is a `KeySetEnvelope`; `ends_at` is the end of the certificate and of the permission."""

    node_id: UUID
    deploy_epoch: DeployEpoch
    certificate_pem: str
    key_set: JsonObject
    ends_at: Instant
    server_time: datetime


class DeployHello(Wire):
    """Body of `POST /deploy/v1/hello`: the deploy system has started on this machine. `boot_id` is the kernel's."""

    agent_version: Annotated[str, Field(min_length=1, max_length=64, pattern=STORABLE)]
    boot_id: UUID
    kernel: Text | None = None
    memory_bytes: Whole | None = None
    uptime_seconds: Seconds = 0.0
    boot_mode: Literal["uefi", "bios"] | None = None
    secure_boot: Truth | None = None


class DeployHelloAnswer(FromServer):
    """The server's time, and when the certificate ends."""

    server_time: datetime
    ends_at: Instant


class DeployTaskFailure(Wire):
    """A failed task: stable code, a sentence for a person, and what was found, as far as it is known."""

    code: DeployFailureCode
    detail: Annotated[str, Field(max_length=2_000, pattern=STORABLE)]


class DeployResultReport(Wire):
    """Body of `POST /deploy/v1/tasks/{id}/result`. Exactly one of `result` and `failure` is set.

    A failed wipe has the report of what was done as `evidence`. `wipe_statement`: of a completed wipe that ends a tenancy,
    a `StatementEnvelope` (node_agent/wiping/statement.py); it is beside the result, which workers of earlier versions read.
    """

    fence: Whole
    outcome: Literal["completed", "failed"]
    result: JsonObject | None = None
    failure: DeployTaskFailure | None = None
    evidence: JsonObject | None = None
    wipe_statement: JsonObject | None = None

    @field_validator("result", "evidence", "wipe_statement")
    @classmethod
    def _storable(cls, value: JsonObject | None) -> JsonObject | None:
        return None if value is None else storable(value)

    @model_validator(mode="after")
    def _is_one_outcome(self) -> Self:
        if (self.outcome == "completed") != (self.result is not None) or (self.outcome == "failed") != (
            self.failure is not None
        ):
            raise ValueError("a completed task has a result, a failed one has a failure")
        if self.evidence is not None and self.failure is None:
            raise ValueError("evidence belongs to a failure")
        if self.wipe_statement is not None and self.result is None:
            raise ValueError("a wipe statement belongs to a result")
        return self
