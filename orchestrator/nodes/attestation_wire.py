"""The wire types of attestation (node_agent/attestation/wire.py) to and from bytes."""

from __future__ import annotations

import base64
import binascii

from node_agent.attestation.wire import Attestation, AttestationChallenge
from orchestrator.nodes.attestation.evidence import Challenge
from orchestrator.nodes.store.attestation import Answer
from orchestrator.problems import Invalid


def structure(text: str, field: str) -> bytes:
    """The bytes of a structure in base64. Raises `Invalid`."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Invalid(f"{field}: is not base64", errors=[{"field": field, "message": "is not base64"}]) from error


def answer_of(attestation: Attestation | None) -> Answer | None:
    """What the agent answered to its challenge, if it did. Raises `Invalid`."""
    if attestation is None:
        return None
    return Answer(
        structure(attestation.quote, "attestation.quote"), structure(attestation.signature, "attestation.signature")
    )


def challenge_document(challenge: Challenge | None) -> AttestationChallenge:
    """The challenge as the agent gets it, without its secret."""
    if challenge is None:
        return AttestationChallenge()
    return AttestationChallenge(
        credential=base64.b64encode(challenge.credential).decode(),
        encrypted_secret=base64.b64encode(challenge.encrypted_secret).decode(),
    )
