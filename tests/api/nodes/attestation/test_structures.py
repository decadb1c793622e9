"""The parser of TPM structures refuses what is not one exact layout, and never fails otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.attestation.wire import AttestationChallenge, quoted_data
from orchestrator.nodes.attestation.evidence import Evidence, new_challenge, verify_evidence
from orchestrator.nodes.attestation.structures import (
    read_attestation_key,
    read_endorsement_key,
    read_quote,
)
from orchestrator.nodes.refusals import AttestationRefused
from tests.api.nodes.attestation.recorded.session import Session
from tests.api.nodes.attestation.software_tpm import SoftwareTpm, encoded

RECORDED = Session.load()
READERS: dict[str, Callable[[bytes], Any]] = {
    "ek_public": read_endorsement_key, "ak_public": read_attestation_key, "quote": read_quote,
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=1_200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for read in READERS.values():
        with pytest.raises(AttestationRefused):
            read(content)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_changed_structure_is_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(READERS)))
    content = bytearray(getattr(RECORDED, name))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["set", "cut", "grow"])):
            case "set":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at + 1 :]
            case _:
                content[at:at] = data.draw(st.binary(min_size=1, max_size=40))
    try:
        READERS[name](bytes(content))
    except AttestationRefused:
        return
    if bytes(content) != getattr(RECORDED, name) and name == "quote":
        evidence = Evidence(RECORDED.secret, bytes(content), RECORDED.signature)
        with pytest.raises(AttestationRefused):
            verify_evidence(read_attestation_key(RECORDED.ak_public), evidence, RECORDED.key_sha256)


@pytest.mark.parametrize("name", READERS)
def test_every_shorter_or_longer_structure_is_refused(name: str) -> None:
    content = getattr(RECORDED, name)
    READERS[name](content)
    for changed in [*(content[:length] for length in range(len(content))), content + b"\0", content + bytes(2_000)]:
        with pytest.raises(AttestationRefused):
            READERS[name](changed)


def test_what_swtpm_has_signed_is_accepted_for_its_request_alone() -> None:
    ak = read_attestation_key(RECORDED.ak_public)
    evidence = Evidence(RECORDED.secret, RECORDED.quote, RECORDED.signature)
    verify_evidence(ak, evidence, RECORDED.key_sha256)
    other = Evidence(bytes(32), RECORDED.quote, RECORDED.signature)
    for changed, key in ((evidence, bytes(32)), (other, RECORDED.key_sha256)):
        with pytest.raises(AttestationRefused, match="another challenge"):
            verify_evidence(ak, changed, key)


def test_the_fingerprint_and_the_name_are_those_that_tpm2_tools_show() -> None:
    assert read_endorsement_key(RECORDED.ek_public).sha256 == RECORDED.ek_sha256
    assert read_attestation_key(RECORDED.ak_public).name == RECORDED.ak_name


def test_a_challenge_is_decrypted_by_the_tpm_with_both_keys() -> None:
    tpm = SoftwareTpm()
    made = new_challenge(read_endorsement_key(tpm.ek_public), read_attestation_key(tpm.ak_public))
    wire = AttestationChallenge(credential=encoded(made.credential), encrypted_secret=encoded(made.encrypted_secret))
    assert tpm.activate(wire) == made.secret
    assert made.secret not in made.credential
    assert len(quoted_data(made.secret, bytes(32))) == 32
