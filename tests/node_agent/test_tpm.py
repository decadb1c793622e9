"""An agent with a TPM proves it at enrolment and at each renewal; without an answer of the TPM it sends no request."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import pytest

from node_agent.attestation.wire import TpmKeys
from orchestrator.nodes.attestation.evidence import Challenge, Evidence, new_challenge, verify_evidence
from orchestrator.nodes.attestation.structures import read_attestation_key, read_endorsement_key
from orchestrator.nodes.attestation_wire import challenge_document
from tests.api.nodes.attestation.swtpm import MISSING, WHY_NOT, running_tpm
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane


class Challenges:
    """Challenges as the control plane makes them."""

    def __init__(self) -> None:
        self.made: list[tuple[TpmKeys, Challenge]] = []

    def make(self, keys: TpmKeys) -> tuple[int, Any]:
        """A new one for these keys."""
        ek = read_endorsement_key(base64.b64decode(keys.ek_public))
        made = new_challenge(ek, read_attestation_key(base64.b64decode(keys.ak_public)))
        self.made.append((keys, made))
        return 200, challenge_document(made)

    def verify(self, plane: ControlPlane) -> None:
        """Each request answers the challenge before it, for its key."""
        for (keys, made), (key, attestation) in zip(self.made, plane.attestations, strict=True):
            assert attestation is not None
            proof = Evidence(made.secret, base64.b64decode(attestation.quote), base64.b64decode(attestation.signature))
            ak = read_attestation_key(base64.b64decode(keys.ak_public))
            verify_evidence(ak, proof, hashlib.sha256(key).digest())


@pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)
def test_an_agent_with_a_tpm_proves_it_for_each_certificate(play: Play, tmp_path: Path) -> None:
    challenges = Challenges()

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.challenge = challenges.make
        plane.certificate_life = dt.timedelta(hours=2)
        plane.certificate_age = dt.timedelta(hours=1) - dt.timedelta(seconds=1)
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > 0)
        plane.certificate_age = dt.timedelta(0)
        await plane.until(lambda: len(plane.renewals) == 1)
        assert len(plane.attestations) == 2
        challenges.verify(plane)
        assert challenges.made[0][0] == challenges.made[1][0], "the same keys each time"
        assert not list((agent.state_dir / "identity").glob("tpm-*"))

    with running_tpm(tmp_path / "swtpm") as tcti:
        play(scenario, started=False, BERTH_TPM_TCTI=tcti)


@pytest.mark.full
def test_an_agent_whose_tpm_does_not_answer_does_not_enrol(play: Play, tmp_path: Path) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        assert await agent.exit_status() == 1
        assert "this node's TPM does not answer" in agent.log
        assert plane.enrolments == []

    play(scenario, started=False, BERTH_TPM_TCTI=f"device:{tmp_path}/none", BERTH_AGENT_STARTUP_SECONDS="1")


@pytest.mark.skipif(bool(MISSING), reason=WHY_NOT)
def test_an_agent_of_which_no_proof_is_asked_enrols_without_one(play: Play, tmp_path: Path) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > 0)
        assert [attestation for _, attestation in plane.attestations] == [None]

    with running_tpm(tmp_path / "swtpm") as tcti:
        play(scenario, started=False, BERTH_TPM_TCTI=tcti)
