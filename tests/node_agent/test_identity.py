"""Enrolment, renewal, and what happens when the certificate is of no more use."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import stat
import uuid
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node_agent.identity import StoredIdentity, request_pem
from node_agent.protocol import TaskType
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.authority import Authority
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane, public_key_of


def test_a_certificate_is_renewed_at_half_its_life_and_used_at_once(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.certificate_life = dt.timedelta(hours=2)
        plane.certificate_age = dt.timedelta(hours=1) - dt.timedelta(seconds=1)
        token = plane.new_token()
        agent.start(BERTH_ENROLMENT_TOKEN=token)
        await plane.until(lambda: plane.waits > 0)
        first = (agent.state_dir / "identity" / "client.pem").read_bytes()
        plane.certificate_age = dt.timedelta(0)
        await plane.until(lambda: len(plane.renewals) == 1)
        beats = len(plane.heartbeats)
        await plane.until(lambda: len(plane.heartbeats) > beats + 1)
        renewed = agent.state_dir / "identity" / "client.pem"
        assert renewed.read_bytes() != first
        for secret in (renewed, agent.state_dir / "identity" / "credentials.json"):
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
        assert token not in secret.read_text()
        assert len(plane.renewals) == 1
        report = await plane.result_of(await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {})))
        assert report.outcome == "completed"
        assert len(plane.enrolments) == 1

    play(scenario, started=False)


@pytest.mark.full
def test_a_renewal_without_an_answer_is_repeated_with_the_same_key_even_after_a_kill(play: Play) -> None:
    """Another key would be a second claim to the identity: the control plane suspends the node for it."""

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.certificate_life = dt.timedelta(hours=2)
        plane.certificate_age = dt.timedelta(hours=1)
        plane.lost_renewals = 3
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: len(plane.renewals) >= 2)
        agent.kill()
        plane.certificate_age = dt.timedelta(0)
        agent.start()
        await plane.until(lambda: len(plane.renewals) > plane.lost_renewals)
        assert len(set(plane.renewals)) == 1
        assert plane.renewals[0] != public_key_of(plane.enrolments[0].csr_pem)

    play(scenario, started=False)


@pytest.mark.full
def test_a_task_signed_with_a_new_key_makes_the_agent_fetch_it_and_keep_its_certificate(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.signing_key = Ed25519PrivateKey.generate()
        plane.carry(2, plane.signing_key)
        plane.announced_serial = None
        report = await plane.result_of(await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {})))
        assert report.outcome == "completed"
        assert plane.key_set_requests == 1
        assert plane.renewals == []

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.5")


def test_an_expired_certificate_is_replaced_with_a_new_token_and_never_with_the_used_one(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        token = plane.new_token()
        agent.start(BERTH_ENROLMENT_TOKEN=token)
        await plane.until(lambda: plane.waits > 0)
        agent.kill()
        hardware = plane.enrolments[0].hardware_id
        _expire(plane, agent)

        agent.start(BERTH_ENROLMENT_TOKEN=token)
        assert await agent.exit_status() == 1
        last = agent.log.strip().splitlines()[-1]
        assert last.startswith("node_agent: ")
        assert "no unused enrolment token" in last
        assert len(plane.enrolments) == 1

        waits = plane.waits
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > waits)
        assert len(plane.enrolments) == 2
        assert plane.enrolments[1].hardware_id == hardware
        report = await plane.result_of(await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {})))
        assert report.outcome == "completed"

    play(scenario, started=False)


def _expire(plane: ControlPlane, agent: AgentProcess) -> None:
    """Replace the certificate on disk by one for the same key that has run out."""
    file = agent.state_dir / "identity" / "credentials.json"
    stored = StoredIdentity.model_validate_json(file.read_bytes())
    old = plane.authority.issue_node(
        request_pem(stored.private_key_pem), plane.node_id, plane.now() - dt.timedelta(hours=2), dt.timedelta(hours=1)
    )
    credentials = stored.credentials.model_copy(update={"certificate_pem": old})
    file.write_text(stored.model_copy(update={"credentials": credentials}).model_dump_json())


@pytest.mark.full
def test_the_agent_sends_nothing_to_a_server_of_another_authority(play: Play, tmp_path: Path) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        heard: list[bytes] = []

        async def listen_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.read())
            writer.close()

        certificate, key, _ = Authority.new().write_server_files(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        impostor = await asyncio.start_server(listen_in, "127.0.0.1", 0, ssl=context)
        async with impostor:
            address = f"https://127.0.0.1:{impostor.sockets[0].getsockname()[1]}"
            agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token(), BERTH_NODE_API_URL=address)
            assert await agent.exit_status() == 1
        assert "CERTIFICATE_VERIFY_FAILED" in agent.log.strip().splitlines()[-1]
        assert not any(heard)

    play(scenario, started=False, BERTH_AGENT_STARTUP_SECONDS="1")


@pytest.mark.full
def test_a_refused_certificate_ends_a_running_agent_with_one_sentence(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.refuse_certificates = True
        assert await agent.exit_status() == 1
        assert "the server refuses this node's certificate" in agent.log.strip().splitlines()[-1]

    play(scenario, BERTH_AGENT_WAIT_SECONDS="0.2")


@pytest.mark.full
def test_it_waits_for_a_server_that_is_not_up_yet_and_logs_it(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        # The node listener is up; the public one that it enrols at is somewhere else.
        agent.start(BERTH_API_URL="http://127.0.0.1:9", BERTH_ENROLMENT_TOKEN=plane.new_token())
        assert await agent.exit_status() == 1
        assert '"for_what":"enrolment"' in agent.log
        assert agent.log.strip().splitlines()[-1].startswith("node_agent: waited 1 s to enrol at http://127.0.0.1:9")

    play(scenario, started=False, BERTH_AGENT_STARTUP_SECONDS="1")


@pytest.mark.full
def test_without_a_token_or_settings_it_says_what_is_missing(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        agent.start()
        assert await agent.exit_status() == 1
        assert "BERTH_ENROLMENT_TOKEN" in agent.log.strip().splitlines()[-1]
        agent.start(BERTH_AGENT_WAIT_SECONDS="a while")
        assert await agent.exit_status() == 1
        sentence = "node_agent: these settings are missing or wrong: BERTH_AGENT_WAIT_SECONDS: "
        assert agent.log.strip().splitlines()[-1].startswith(sentence)
        agent.start(BERTH_ENROLMENT_TOKEN=f"enrol2.-.{uuid.uuid4()}")
        assert await agent.exit_status() == 1
        assert "refuses to enrol" in agent.log.strip().splitlines()[-1]

    play(scenario, started=False)


@pytest.mark.full
def test_a_state_directory_has_one_agent(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        first = agent.process
        agent.start()
        assert await agent.exit_status() == 1
        assert "another agent runs on" in agent.log.strip().splitlines()[-1]
        agent.process = first
        report = await plane.result_of(await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {})))
        assert report.outcome == "completed"

    play(scenario)
