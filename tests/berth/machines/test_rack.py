"""Emulated machines share nothing, change no host, and what they need is named."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from berth.cli.known_stack import StackProblem
from berth.cli.main import app
from berth.local.authority import ensure_authority, name_listeners
from berth.local.machines.bmcs import program
from berth.local.machines.networks import HOST, port_arguments, require_own_network
from berth.local.machines.plan import plan_machines
from berth.local.machines.rack import own_directory
from berth.local.machines.stack import deploy_listener_plan, site_agent_plan
from berth.local.processes import Endpoints

ENDPOINTS = Endpoints("postgresql://db", "nats://n", "t:7233", 18080, 18443)


def test_machines_share_no_name_no_mac_and_no_address() -> None:
    machines = plan_machines(8)
    for values in ({m.name for m in machines}, {m.mac for m in machines}, {m.address for m in machines}):
        assert len(values) == 8
    assert HOST not in {machine.address for machine in machines}
    assert machines[0].network == {"mac": "52:54:00:be:27:01", "address": "10.0.2.31/24", "gateway": HOST}


def test_each_machine_is_reached_at_its_own_address() -> None:
    first, second = (port_arguments(machine.mac, machine.address)[1] for machine in plan_machines(2))
    assert "hostfwd=tcp:10.0.2.31:22-10.0.2.31:22" in first
    assert "hostfwd=tcp:10.0.2.32:22-10.0.2.32:22" in second


@pytest.mark.skipif(
    [name for _, name in socket.if_nameindex()] == ["lo"], reason="this is a network namespace without interfaces"
)
def test_the_routes_of_a_host_are_never_changed() -> None:
    with pytest.raises(StackProblem, match="make demo DRIVER=redfish"):
        require_own_network()


def test_the_directory_is_gone_afterwards_also_after_a_failure(tmp_path: Path) -> None:
    place = tmp_path / "machines"
    with pytest.raises(KeyboardInterrupt), own_directory(place):  # noqa: PT012 - what was made before the failure goes too
        (place / "disk.raw").write_text("content")
        raise KeyboardInterrupt
    assert not place.exists()


def test_what_a_killed_run_left_goes_first(tmp_path: Path) -> None:
    place = tmp_path / "machines"
    running = own_directory(place)
    running.__enter__()
    (place / "disk.raw").write_text("content")
    with own_directory(place):
        assert not (place / "disk.raw").exists()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("mine")
    with pytest.raises(StackProblem, match="name another --machine-dir"), own_directory(tmp_path):
        pass
    assert (tmp_path / "thesis").read_text() == "mine"


def test_a_missing_emulator_of_bmcs_is_named_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(StackProblem, match="make build/redfish/ready"):
        program(tmp_path, "sushy-emulator")


def test_the_listeners_are_also_named_as_machines_call_this_host(tmp_path: Path) -> None:
    authority = ensure_authority(tmp_path, "berth.local")
    name_listeners(authority, (HOST,))
    made = x509.load_pem_x509_certificate(authority.listener_certificate.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", HOST]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_machines_reach_the_public_listener_over_tls_alone(tmp_path: Path) -> None:
    authority = ensure_authority(tmp_path, "berth.local")
    plan = deploy_listener_plan(ENDPOINTS, authority, 19443, 19444, {"BERTH_PUBLIC_API_URL": f"https://{HOST}:19443"})
    assert plan.ports == {"deploy-api": 19443}
    assert plan.environment["BERTH_PUBLIC_PORT"] == "19443"
    assert plan.environment["BERTH_PUBLIC_TLS_CERTIFICATE_FILE"] == str(authority.listener_certificate)
    assert "BERTH_CONSOLE_PORT" not in plan.environment


def test_the_agent_of_the_site_is_the_one_of_every_site(tmp_path: Path) -> None:
    authority = ensure_authority(tmp_path, "berth.local")
    plan = site_agent_plan(
        ENDPOINTS, authority, tmp_path / "state", tmp_path / "token", tmp_path / "medium", media_port=19445, metrics_port=19446
    )  # fmt: skip
    assert plan.command[-2:] == ["node_agent", "--site"]
    assert plan.environment["BERTH_SITE_MEDIA_HOST"] == "127.0.0.1"


def test_a_medium_without_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "medium").touch()
    refused = CliRunner().invoke(
        app, ["demo", "--state-dir", str(tmp_path / "demo"), "--deploy-medium", str(tmp_path / "medium")]
    )
    assert refused.exit_code == 2
    assert refused.stderr.startswith("berth: --deploy-medium needs --guest-image")
    assert not (tmp_path / "demo").exists()
