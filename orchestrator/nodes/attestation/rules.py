"""What an attestation on demand proves: the bound key, the nonce, the PCRs, and what firmware states. Pure.

The quote proves the nonce and the PCRs. Firmware versions and the digest of the event log are what the system states; they
are compared and kept, and no more is claimed of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from node_agent.wire.attestations import PCR_COUNT, AttestationReport, nonce_data
from orchestrator.nodes.attestation.evidence import require_signature
from orchestrator.nodes.attestation.structures import AttestationKey, Quote, read_quote
from orchestrator.nodes.firmware.rules import OBJECTIONS_MAX, Objection
from orchestrator.nodes.refusals import AttestationReason, AttestationRefused

REQUEST_SECONDS_MAX: Final = 300.0
"""How long a request waits for the worker before its task is signed."""
ATTEST_SECONDS_MAX: Final = 300.0
"""How long a node has to answer: a slow TPM makes two keys and a quote, each in tens of seconds."""
MACHINE_SECONDS_MAX: Final = 1_200
"""How long a deploy system has to answer once it has said hello."""
MACHINE_RUN_SECONDS_MAX: Final = 18_000.0
"""Longer than the steps of a run may take together: three of the site, and that of its deploy system."""
HISTORY_MAX: Final = 10
"""Attestations that are kept of each node."""
NONCE_BYTES: Final = 32
DETAIL_MAX: Final = 500


class Verdict(StrEnum):
    """How an attestation ended. `failed`: its code says whether the machine failed it, or nothing was proven."""

    PASSED = "passed"
    FAILED = "failed"


class AttestationCode(StrEnum):
    """Why an attestation failed. The first of these that applies is stored."""

    TPM_ABSENT = "tpm_absent"
    TPM_FAILED = "tpm_failed"
    TPM_NOT_BOUND = "tpm_not_bound"
    """The node's TPM was forgotten or replaced after the request."""
    LATE = "late"
    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad_signature"
    OTHER_NONCE = "other_nonce"
    PCR_SELECTION = "pcr_selection"
    PCR_DIGEST = "pcr_digest"
    PCRS_CHANGED = "pcrs_changed"
    FIRMWARE_CHANGED = "firmware_changed"
    FIRMWARE_NOT_LISTED = "firmware_not_listed"
    FIRMWARE_NOT_READ = "firmware_not_read"
    BAD_REPORT = "bad_report"
    EXPIRED = "expired"
    NODE_OFFLINE = "node_offline"
    NODE_RETIRED = "node_retired"
    UNSUPPORTED = "attestation_unsupported"
    RUN_FAILED = "run_failed"
    """The run of its deploy system did not complete; the detail has the run's code."""
    TASK_FAILED = "task_failed"
    """The agent did not perform the task; the detail has the task's code."""


SUSPECT: Final = frozenset({
    AttestationCode.TPM_ABSENT, AttestationCode.MALFORMED, AttestationCode.BAD_SIGNATURE, AttestationCode.OTHER_NONCE,
    AttestationCode.PCR_SELECTION, AttestationCode.PCR_DIGEST, AttestationCode.PCRS_CHANGED, AttestationCode.FIRMWARE_CHANGED,
    AttestationCode.FIRMWARE_NOT_LISTED, AttestationCode.FIRMWARE_NOT_READ, AttestationCode.BAD_REPORT,
})  # fmt: skip
"""Codes of an answer that is evidence about the machine. What was not answered may be a fault of network, agent or worker."""


class OnFailure(StrEnum):
    """What a failed attestation does to the node. `quarantine`: with a code of `SUSPECT`, every slot is out of service."""

    REPORT = "report"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Expected:
    """What an answer is compared with. `key` None: no TPM is bound to the node any more. `pcrs` None: none were accepted."""

    key: AttestationKey | None
    nonce: bytes
    pcrs: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict. `pcrs`: those that the bound key has signed for this nonce, None if it has not."""

    verdict: Verdict
    code: AttestationCode | None
    detail: str
    pcrs: list[str] | None


def failed(code: AttestationCode, detail: str, pcrs: list[str] | None = None) -> Judgement:
    """A failed attestation."""
    return Judgement(Verdict.FAILED, code, detail[:DETAIL_MAX], pcrs)


_OBJECTED: Final = {
    Objection.CHANGED: AttestationCode.FIRMWARE_CHANGED,
    Objection.NOT_LISTED: AttestationCode.FIRMWARE_NOT_LISTED,
    Objection.NOT_READ: AttestationCode.FIRMWARE_NOT_READ,
}
_REFUSED: Final = {
    AttestationReason.BAD_SIGNATURE: AttestationCode.BAD_SIGNATURE,
}


def judge(
    report: AttestationReport, expected: Expected, objections: Sequence[tuple[Objection, str]], *, is_late: bool
) -> Judgement:
    """The verdict on an answer. `objections`: what is wrong with the firmware versions of the report."""
    if is_late:
        return failed(AttestationCode.LATE, "the answer came after its deadline")
    if report.proof is None:
        return failed(AttestationCode(report.failure or AttestationCode.TPM_FAILED), report.detail)
    if expected.key is None:
        return failed(AttestationCode.TPM_NOT_BOUND, "the node has no TPM any more; enrol it again")
    try:
        quote_bytes, signature = _decoded(report.proof.quote), _decoded(report.proof.signature)
        require_signature(expected.key, quote_bytes, signature)
        quote = read_quote(quote_bytes)
    except AttestationRefused as refused:
        return failed(_REFUSED.get(refused.reason, AttestationCode.MALFORMED), refused.detail)
    objection = _objection(quote, report.proof.pcrs, expected.nonce)
    if objection is not None:
        return objection
    pcrs = list(report.proof.pcrs)
    changed = [index for index, value in enumerate(pcrs) if expected.pcrs is not None and expected.pcrs[index] != value]
    if changed:
        named = ", ".join(map(str, changed))
        return failed(AttestationCode.PCRS_CHANGED, f"PCRs with other values than the accepted ones: {named}", pcrs)
    if objections:
        detail = "; ".join(f"{code.value}: {text}" for code, text in objections[:OBJECTIONS_MAX])
        return failed(_OBJECTED[objections[0][0]], detail, pcrs)
    return Judgement(Verdict.PASSED, None, "", pcrs)


def _objection(quote: Quote, pcrs: Sequence[str], nonce: bytes) -> Judgement | None:
    """Why the signed quote is no answer to this nonce with these PCRs."""
    if not hmac.compare_digest(quote.extra_data, nonce_data(nonce)):
        return failed(AttestationCode.OTHER_NONCE, "the quote is over another nonce")
    if not quote.selects_first(PCR_COUNT):
        return failed(
            AttestationCode.PCR_SELECTION, f"the quote does not cover PCRs 0 to {PCR_COUNT - 1} of SHA-256 alone"
        )
    digest = hashlib.sha256(b"".join(bytes.fromhex(one) for one in pcrs)).digest()
    if not hmac.compare_digest(digest, quote.pcr_digest):
        return failed(AttestationCode.PCR_DIGEST, "the PCRs of the report are not those that the quote covers")
    return None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise AttestationRefused(AttestationReason.MALFORMED, "a structure is not base64") from error
