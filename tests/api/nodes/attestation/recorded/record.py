"""Record `session.json` from a new swtpm: `python -m tests.api.nodes.attestation.recorded.record`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from node_agent.attestation.tpm import AK_ALGORITHM, AK_ATTRIBUTES, Tpm
from node_agent.attestation.wire import AttestationChallenge
from orchestrator.nodes.attestation.evidence import new_challenge
from orchestrator.nodes.attestation.structures import read_attestation_key, read_endorsement_key
from tests.api.nodes.attestation.recorded.session import Session
from tests.api.nodes.attestation.swtpm import running_tpm


def record(tcti: str, directory: Path) -> Session:
    """One answered challenge."""
    tpm, key_sha256 = Tpm(tcti, directory), os.urandom(32)
    keys = asyncio.run(tpm.keys())
    ek_public, ak_public = base64.b64decode(keys.ek_public), base64.b64decode(keys.ak_public)
    made = new_challenge(read_endorsement_key(ek_public), read_attestation_key(ak_public))
    wire = AttestationChallenge(
        credential=base64.b64encode(made.credential).decode(),
        encrypted_secret=base64.b64encode(made.encrypted_secret).decode(),
    )
    proof = asyncio.run(tpm.answer(wire, key_sha256))
    ek_der, ak_name = _shown(tcti, directory)
    return Session(
        ek_public, ak_public, hashlib.sha256(ek_der).digest(), ak_name, made.secret, key_sha256,
        base64.b64decode(proof.quote), base64.b64decode(proof.signature),
    )  # fmt: skip


def _shown(tcti: str, directory: Path) -> tuple[bytes, bytes]:
    """The endorsement key as DER and the attestation key's name, as tpm2-tools write them."""
    for command in (
        ["createek", "-c", "ek", "-G", "rsa", "-u", "ek.der", "-f", "der"], ["flushcontext", "-t"],
        ["createprimary", "-C", "e", "-g", "sha256", "-G", AK_ALGORITHM, "-a", AK_ATTRIBUTES, "-c", "ak"],
        ["flushcontext", "-t"], ["readpublic", "-c", "ak", "-n", "ak.name"], ["flushcontext", "-t"],
    ):  # fmt: skip
        environment = {**os.environ, "TPM2TOOLS_TCTI": tcti}
        subprocess.run(
            [f"tpm2_{command[0]}", *command[1:]], check=True, capture_output=True, cwd=directory, env=environment
        )
    return (directory / "ek.der").read_bytes(), (directory / "ak.name").read_bytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, running_tpm(Path(name)) as address:
        record(address, Path(name)).save()
