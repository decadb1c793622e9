"""The agent's side on a real TPM implementation: swtpm."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.attestation.tpm import Tpm, TpmFailed
from node_agent.attestation.wire import AttestationChallenge, TpmKeys
from tests.api.calling import problem
from tests.api.nodes.attestation.attesting import Enrolling, Renewing, key_digest
from tests.api.nodes.attestation.swtpm import MISSING, WHY_NOT, lock_out, running_tpm
from tests.api.nodes.node_side import NodeSide, new_key
from tests.support.public_api import PublicApi

pytestmark = pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)


class RealTpm:
    """The agent's calls of a TPM, for a caller without an event loop."""

    def __init__(self, tcti: str, directory: Path) -> None:
        self.tpm = Tpm(tcti, directory)

    def keys(self) -> TpmKeys:
        """As `Tpm.keys`."""
        return asyncio.run(self.tpm.keys())

    def answer(self, challenge: AttestationChallenge, key_sha256: bytes) -> Any:
        """As `Tpm.answer`."""
        return asyncio.run(self.tpm.answer(challenge, key_sha256))


@pytest.fixture(scope="module")
def tpms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """The TPMs of two machines."""
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    with running_tpm(first) as one, running_tpm(second) as other:
        yield [RealTpm(one, first), RealTpm(other, second)]


def test_a_node_enrols_and_renews_with_its_tpm_and_with_no_other(
    api: PublicApi, node: Any, node_side: NodeSide, tpms: list[Any], tmp_path: Path
) -> None:
    tpm, other = tpms
    anew: Any = RealTpm(tpm.tpm._tcti, tmp_path)
    enrolled = Enrolling.of(api, node).attest(tpm)
    assert enrolled.status_code == 200, enrolled.text
    renewing = Renewing(node_side, enrolled.json()["certificate_pem"])
    assert renewing.attest(anew).status_code == 200, "an agent started anew has the same keys"
    challenge = renewing.challenge(tpm)
    with pytest.raises(TpmFailed, match="tpm2_activatecredential failed"):
        other.answer(challenge, key_digest(new_key()))
    assert problem(renewing.ask(other), 403, "attestation_refused")["reason"] == "other_tpm"
    key = new_key()
    proof = tpm.answer(challenge, key_digest(new_key()))
    assert problem(renewing.send(key, proof), 403, "attestation_refused")["reason"] in ("no_challenge", "other_request")


def test_nothing_of_a_session_stays_on_disk(tpms: list[Any], tmp_path: Path) -> None:
    RealTpm(tpms[0].tpm._tcti, tmp_path).keys()
    assert list(tmp_path.iterdir()) == []


def test_a_tpm_that_vanished_is_an_error_with_its_program(tmp_path: Path) -> None:
    with running_tpm(tmp_path) as tcti:
        tpm = RealTpm(tcti, tmp_path)
        tpm.keys()
    with pytest.raises(TpmFailed, match="tpm2_createek failed"):
        tpm.keys()


def test_a_deploy_system_ends_the_lockout_that_a_tenant_has_left_and_a_node_does_not(tmp_path: Path) -> None:
    """Without it the deploy system has no proof, is not admitted, and the machine cannot be wiped."""
    with running_tpm(tmp_path) as tcti:
        lock_out(tcti, tmp_path)
        with pytest.raises(TpmFailed, match="lockout mode"):
            asyncio.run(Tpm(tcti, tmp_path).attest(bytes(32)))
        asyncio.run(Tpm(tcti, tmp_path, ends_lockout=True).attest(bytes(32)))
        asyncio.run(Tpm(tcti, tmp_path).attest(bytes(32)))


def test_a_lockout_that_its_owner_keeps_is_an_error_that_names_it(tmp_path: Path) -> None:
    with running_tpm(tmp_path) as tcti:
        lock_out(tcti, tmp_path)
        owner = ["tpm2_changeauth", "-c", "lockout", "owners"]
        subprocess.run(owner, check=True, capture_output=True, env={**os.environ, "TPM2TOOLS_TCTI": tcti}, timeout=60)
        with pytest.raises(TpmFailed, match="tpm2_dictionarylockout failed"):
            asyncio.run(Tpm(tcti, tmp_path, ends_lockout=True).attest(bytes(32)))
