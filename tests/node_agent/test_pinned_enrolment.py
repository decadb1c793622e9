"""A token is sent only over TLS to a server of the CA that the token pins."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from node_agent.pinning import pin_of, tls_for_token
from node_agent.problems import CannotStart
from node_agent.protocol import TaskType
from tests.node_agent.agents import AgentProcess, Tenant
from tests.node_agent.authority import Authority
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

SECRET = "s" * 43


def pin(authority: Authority) -> str:
    """The pin of an authority."""
    return pin_of(x509.load_pem_x509_certificate(authority.pem.encode()))


def known(tmp_path: Path, *authorities: Authority) -> Path:
    """The file of the CAs that the machine knows."""
    file = tmp_path / "cas.pem"
    file.write_text("".join(authority.pem for authority in authorities))
    return file


def test_an_agent_enrols_over_tls_with_a_server_of_the_pinned_ca(play: Play, tmp_path: Path) -> None:
    ours, other = Authority.new(), Authority.new()
    environment = {"BERTH_API_CA_FILE": str(known(tmp_path, other, ours)), "BERTH_ENROLMENT_HTTP_ALLOWED": "false"}

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        directory = tmp_path / "public"
        directory.mkdir()
        async with plane.tls_listener(ours, directory) as port:
            url, token = f"https://127.0.0.1:{port}", plane.new_token(pin(ours))
            agent.start(BERTH_API_URL=url, BERTH_ENROLMENT_TOKEN=token)
            await plane.until(lambda: plane.waits > 0)
            probe = await plane.hand_out(plane.body(TaskType.HEALTH_PROBE, {}))
            assert (await plane.result_of(probe)).outcome == "completed"
        assert len(plane.received) == 1

    play(scenario, started=False, **environment)


@pytest.mark.quick("other-127.0.0.1")
@pytest.mark.parametrize(("server", "host"), [("other", "127.0.0.1"), ("ours", "localhost")])
def test_the_token_is_not_sent_to_another_server(play: Play, tmp_path: Path, server: str, host: str) -> None:
    """The other CA is known to the machine and signed the certificate, or the pinned CA signed it for another name."""
    authorities = {"ours": Authority.new(), "other": Authority.new()}

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        directory = tmp_path / "public"
        directory.mkdir()
        async with plane.tls_listener(authorities[server], directory) as port:
            token = plane.new_token(pin(authorities["ours"]))
            agent.start(BERTH_API_URL=f"https://{host}:{port}", BERTH_ENROLMENT_TOKEN=token)
            assert await agent.exit_status() == 1
        assert "CERTIFICATE_VERIFY_FAILED" in agent.log.strip().splitlines()[-1]
        assert plane.received == []

    file = known(tmp_path, *authorities.values())
    play(scenario, started=False, BERTH_API_CA_FILE=str(file), BERTH_AGENT_STARTUP_SECONDS="1")


def test_the_token_is_not_sent_without_tls(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token(), BERTH_ENROLMENT_HTTP_ALLOWED="false")
        assert await agent.exit_status() == 1
        assert "without TLS; use an https:// address in BERTH_API_URL" in agent.log.strip().splitlines()[-1]
        assert plane.received == []

    play(scenario, started=False)


OURS = Authority.new()


@pytest.mark.parametrize(
    ("token", "url", "said"),
    [
        (f"enrol_{SECRET}", "https://api.example", "not of this version's format"),
        ("enrol2.-.", "https://api.example", "not of this version's format"),
        (f"enrol2.{'g' * 64}.{SECRET}", "https://api.example", "not of this version's format"),
        (f"enrol2.-.{SECRET}", "https://api.example", "carries no pin"),
        (f"enrol2.{'0' * 64}.{SECRET}", "https://api.example", "pins a CA"),
        (f"enrol2.{pin(OURS)}.{SECRET}", "http://192.0.2.1", "without TLS"),
        (f"enrol2.{pin(OURS)}.{SECRET}", "http://localhost.example", "without TLS"),
        (f"enrol2.{pin(OURS)}.{SECRET}", "ftp://[bad", "without TLS"),
    ],
)
def test_a_token_that_must_not_be_sent_is_a_sentence_without_the_token(
    tmp_path: Path, token: str, url: str, said: str
) -> None:
    for ca_file in (known(tmp_path, OURS), None) if said == "pins a CA" else (known(tmp_path, OURS),):
        with pytest.raises(CannotStart, match=said) as refused:
            tls_for_token(token, url, ca_file, http_allowed=True)
        assert SECRET not in str(refused.value)


def test_without_a_readable_file_of_cas_nothing_is_sent(tmp_path: Path) -> None:
    for content in (None, "", "no certificate"):
        file = tmp_path / "cas.pem"
        if content is not None:
            file.write_text(content)
        with pytest.raises(CannotStart):
            tls_for_token(f"enrol2.{pin(OURS)}.{SECRET}", "https://api.example", file, http_allowed=False)


def test_this_machine_may_be_reached_without_tls_if_it_is_allowed(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        token = f"enrol2.-.{SECRET}"
        assert tls_for_token(token, f"http://{host}:8080", None, http_allowed=True).ca_pem is None
        with pytest.raises(CannotStart):
            tls_for_token(token, f"http://{host}:8080", None, http_allowed=False)
