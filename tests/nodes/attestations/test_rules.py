"""What an answer proves: each attack on it is refused with a code."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import ValidationError

from node_agent.attestation.wire import STRUCTURE_CHARACTERS_MAX, quoted_data
from node_agent.wire.attestations import AttestationProof, AttestationReport
from orchestrator.nodes.attestation.rules import AttestationCode, Expected, Judgement, Verdict, judge
from orchestrator.nodes.attestation.structures import read_attestation_key
from orchestrator.nodes.firmware.rules import Objection
from tests.api.nodes.attestation.software_tpm import SoftwareTpm, encoded
from tests.nodes.attestations.answering import PCRS, SELECTION, proof

NONCE, OTHER_NONCE = bytes(range(32)), bytes(32)
TPM, OTHER_TPM = SoftwareTpm(), SoftwareTpm()
OTHER_PCRS = [*PCRS[:7], "00" * 32]


def judged(given: AttestationProof, pcrs: list[str] | None = None, **more: Any) -> Judgement:
    expected = Expected(read_attestation_key(more.pop("ak", TPM.ak_public)), NONCE, pcrs)
    return judge(
        AttestationReport(proof=given), expected, more.pop("objections", []), is_late=more.pop("is_late", False)
    )


def altered(given: AttestationProof, **change: str) -> AttestationProof:
    return AttestationProof.model_validate({**given.model_dump(), **change})


def signed(content: bytes) -> AttestationProof:
    """Bytes that the bound key has signed."""
    return AttestationProof(
        quote=encoded(content), signature=encoded(TPM.ak.sign(content, ec.ECDSA(hashes.SHA256()))), pcrs=PCRS
    )  # fmt: skip


def test_a_fresh_quote_by_the_bound_key_passes_and_states_its_pcrs() -> None:
    found = judged(proof(TPM, NONCE))
    assert (found.verdict, found.code, found.pcrs) == (Verdict.PASSED, None, PCRS)
    assert judged(proof(TPM, NONCE), PCRS).verdict is Verdict.PASSED


def _of(selection: bytes) -> Callable[[], AttestationProof]:
    return lambda: proof(TPM, NONCE, selection=selection)


ATTACKS: list[tuple[str, Callable[[], AttestationProof], AttestationCode]] = [
    ("an old quote", lambda: proof(TPM, OTHER_NONCE), AttestationCode.OTHER_NONCE),
    ("a quote for a certificate", lambda: proof(TPM, NONCE, data=quoted_data(NONCE, bytes(32))), AttestationCode.OTHER_NONCE),
    ("the nonce itself", lambda: proof(TPM, NONCE, data=NONCE), AttestationCode.OTHER_NONCE),
    ("another TPM", lambda: proof(OTHER_TPM, NONCE), AttestationCode.BAD_SIGNATURE),
    (
        "the signature of another quote",
        lambda: altered(proof(TPM, NONCE), signature=proof(TPM, OTHER_NONCE).signature),
        AttestationCode.BAD_SIGNATURE,
    ),
    ("no signature", lambda: altered(proof(TPM, NONCE), signature=encoded(bytes(8))), AttestationCode.BAD_SIGNATURE),
    ("a long signature", lambda: altered(proof(TPM, NONCE), signature=encoded(bytes(200))), AttestationCode.MALFORMED),
    ("a signed text", lambda: signed(b"berth"), AttestationCode.MALFORMED),
    ("a signed long text", lambda: signed(bytes(1_030)), AttestationCode.MALFORMED),
    ("what is no base64", lambda: altered(proof(TPM, NONCE), quote="AAAAA"), AttestationCode.MALFORMED),
    ("PCRs that the quote does not cover", lambda: proof(TPM, NONCE, quoted=OTHER_PCRS), AttestationCode.PCR_DIGEST),
    ("PCRs in another order", lambda: proof(TPM, NONCE, quoted=PCRS[::-1]), AttestationCode.PCR_DIGEST),
    ("seven PCRs", _of(struct.pack(">IHB", 1, 0x000B, 3) + b"\x7f\0\0"), AttestationCode.PCR_SELECTION),
    ("a ninth PCR", _of(struct.pack(">IHB", 1, 0x000B, 3) + b"\xff\x01\0"), AttestationCode.PCR_SELECTION),
    ("the bank of SHA-1", _of(struct.pack(">IHB", 1, 0x0004, 3) + b"\xff\0\0"), AttestationCode.PCR_SELECTION),
    ("two banks", _of(struct.pack(">I", 2) + SELECTION[4:] * 2), AttestationCode.PCR_SELECTION),
    ("no PCR", _of(struct.pack(">I", 0)), AttestationCode.PCR_SELECTION),
]  # fmt: skip


@pytest.mark.parametrize(("attack", "code"), [case[1:] for case in ATTACKS], ids=[case[0] for case in ATTACKS])
def test_an_attack_is_refused_and_proves_no_pcrs(attack: Callable[[], AttestationProof], code: AttestationCode) -> None:
    found = judged(attack())
    assert (found.verdict, found.code, found.pcrs) == (Verdict.FAILED, code, None)


@pytest.mark.parametrize("count", [1, 60, 114])
def test_a_truncated_quote_is_malformed_even_if_it_is_signed(count: int) -> None:
    whole = base64.b64decode(proof(TPM, NONCE).quote)
    assert judged(signed(whole[:count])).code is AttestationCode.MALFORMED
    assert judged(signed(whole + b"\0")).code is AttestationCode.MALFORMED


def test_a_report_that_is_too_large_or_says_two_things_is_no_report() -> None:
    good = proof(TPM, NONCE).model_dump()
    huge = "A" * (STRUCTURE_CHARACTERS_MAX + 4)
    for wrong in (
        {"proof": {**good, "quote": huge}}, {"proof": {**good, "pcrs": PCRS[:7]}}, {"proof": {**good, "pcrs": [*PCRS, PCRS[0]]}},
        {"proof": {**good, "pcrs": ["0" * 63, *PCRS[1:]]}}, {"proof": good, "failure": "tpm_failed"}, {},
        {"failure": "fine"},
    ):  # fmt: skip
        with pytest.raises(ValidationError):
            AttestationReport.model_validate(wrong)


def test_a_selection_in_more_bytes_is_the_same_selection() -> None:
    assert judged(_of(struct.pack(">IHB", 1, 0x000B, 4) + b"\xff\0\0\0")()).verdict is Verdict.PASSED


def test_other_pcrs_than_the_accepted_ones_fail_and_are_proven() -> None:
    found = judged(proof(TPM, NONCE), [*PCRS[:2], "aa" * 32, *PCRS[3:7], "bb" * 32])
    assert (found.code, found.pcrs) == (AttestationCode.PCRS_CHANGED, PCRS)
    assert found.detail.endswith(": 2, 7")


def test_firmware_fails_after_the_pcrs_and_names_each_objection() -> None:
    objections = [(Objection.NOT_LISTED, "bios smbios: 9"), (Objection.NOT_READ, "bmc: no version was read")]
    found = judged(proof(TPM, NONCE), PCRS, objections=objections)
    assert (found.code, found.pcrs) == (AttestationCode.FIRMWARE_NOT_LISTED, PCRS)
    assert found.detail == "firmware_not_listed: bios smbios: 9; firmware_not_read: bmc: no version was read"
    assert judged(proof(TPM, NONCE), OTHER_PCRS, objections=objections).code is AttestationCode.PCRS_CHANGED
    long = [(Objection.CHANGED, "x" * 200)] * 16
    assert len(judged(proof(TPM, NONCE), objections=long).detail) == 500


def test_an_answer_after_the_deadline_counts_for_nothing() -> None:
    found = judged(proof(TPM, NONCE), is_late=True)
    assert (found.verdict, found.code, found.pcrs) == (Verdict.FAILED, AttestationCode.LATE, None)


def test_without_a_tpm_or_a_bound_key_nothing_is_proven() -> None:
    for failure in ("tpm_absent", "tpm_failed"):
        report = AttestationReport.model_validate({"failure": failure, "detail": "why"})
        found = judge(report, Expected(read_attestation_key(TPM.ak_public), NONCE, None), [], is_late=False)
        assert (found.code, found.detail, found.pcrs) == (AttestationCode(failure), "why", None)
    unbound = judge(AttestationReport(proof=proof(TPM, NONCE)), Expected(None, NONCE, None), [], is_late=False)
    assert unbound.code is AttestationCode.TPM_NOT_BOUND
