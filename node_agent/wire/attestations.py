"""An attestation on demand: what `diag.attest` and `metal.attest` are given and what they return.

The TPM signs a quote over a nonce of the control plane. The context of the signed data is not that of a certificate request
(`node_agent/attestation/wire.py`), so neither quote counts as the other.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from node_agent.attestation.wire import Structure
from node_agent.wire.deploy_tasks import FIRMWARE_MAX, Detail, FirmwareVersion, MetalParameters, Sha256
from node_agent.wire.fields import Whole, Wire
from node_agent.wire.topology import GAPS_MAX, Gap

ATTEST_FEATURE: Final = "attest"
"""What an agent that knows the task names in its heartbeats."""
PCR_COUNT: Final = 8
"""PCRs 0 to 7 of SHA-256: what the firmware measures until it starts a boot loader."""
_CONTEXT: Final = b"berth node attestation on demand v1\0"


class AttestParameters(Wire):
    """What `diag.attest` needs: 32 random bytes of the control plane, in hex."""

    nonce: Sha256


class MetalAttestParameters(MetalParameters):
    """What `metal.attest` needs."""

    nonce: Sha256


class AttestationProof(Wire):
    """A TPMS_ATTEST of type quote, its ECDSA signature in DER, and the PCRs that it covers, in hex."""

    quote: Structure
    signature: Structure
    pcrs: Annotated[list[Sha256], Field(min_length=PCR_COUNT, max_length=PCR_COUNT)]


class EventLogDigest(Wire):
    """The log of what was measured into the PCRs, as the firmware has left it."""

    sha256: Sha256
    size_bytes: Whole


class AttestationReport(Wire):
    """A proof, or why there is none. `firmware` absent: it was not read. `event_log` absent: there is none that can be read."""

    proof: AttestationProof | None = None
    failure: Literal["tpm_absent", "tpm_failed"] | None = None
    detail: Detail = ""
    event_log: EventLogDigest | None = None
    firmware: Annotated[list[FirmwareVersion], Field(max_length=FIRMWARE_MAX)] | None = None
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.proof is None) == (self.failure is None):
            raise ValueError("has either a proof or a failure")
        return self

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        content = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def nonce_data(nonce: bytes) -> bytes:
    """What the quote must name."""
    return hashlib.sha256(_CONTEXT + nonce).digest()
