"""The compose file, checked as far as a machine without Docker allows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import load_pem_x509_certificates
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from berth.process.temporal_connections import read_connection
from migrations.roles import Role
from orchestrator.nodes.certificates import load_authority
from orchestrator.nodes.issuer_settings import IssuerSettings
from orchestrator.settings import Settings as OrchestratorSettings
from orchestrator.tasks.key_set_file import KeySetFile
from orchestrator.tasks.signing import load_signer
from orchestrator.webhooks.keys import load_webhook_keys
from tests.deploy import deployment
from tests.deploy.deployment import SETTINGS, VARIABLE, mounted_secrets, our_services, process, services, target
from worker.payloads import load_payload_keys

SPECIFICATION = Path(__file__).parent / "compose_specification" / "compose-spec.json"
RUNNING = {name: service for name, service in services().items() if service["restart"] == "unless-stopped"}
JOBS = {name: service for name, service in services().items() if name not in RUNNING and "profiles" not in service}


def uses_postgresql(service: dict[str, Any]) -> bool:
    """Whether an address of the database is mounted."""
    return any(name.endswith("database_url") for name in mounted_secrets(service).values())


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that deploy/make-secrets filled."""
    directory = tmp_path_factory.mktemp("deployment") / "secrets"
    deployment.make_secrets(directory)
    return directory


def test_it_is_a_compose_file() -> None:
    schema = json.loads(SPECIFICATION.read_text())
    for file in (deployment.raw_compose(), deployment.compose()):
        assert [error.message for error in Draft202012Validator(schema).iter_errors(file)] == []


def test_every_process_of_ours_has_its_container() -> None:
    commands = {tuple(service.get("command", ())) for service in our_services().values()}
    assert ("python", "-m", "orchestrator", "--listen", "public") in commands
    assert ("python", "-m", "orchestrator", "--listen", "node") in commands
    assert ("python", "-m", "orchestrator", "--listen", "issuer") in commands
    assert ("python", "-m", "worker", "--webhooks") in commands
    assert ("python", "-m", "worker", "--audit-stream") in commands
    assert {target(service) for name, service in our_services().items() if name in RUNNING} == {
        "orchestrator", "relay", "worker",
    }  # fmt: skip
    assert our_services()["migrate"]["command"] == ["migrate"]
    assert "migrate" in JOBS


@pytest.mark.parametrize("name", our_services())
def test_every_variable_is_a_setting_and_none_is_missing(
    name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = our_services()[name]
    settings = SETTINGS[process(service)]
    variables = deployment.settings_variables(service, secrets)
    assert variables.keys() - deployment.known_variables(settings) == set(), "unknown to the process"
    assert deployment.required_variables(settings) - variables.keys() == set(), "required by the process"
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    settings()


@pytest.mark.parametrize("name", ["orchestrator-public", "orchestrator-node", "worker", "webhooks"])
def test_the_keys_that_are_mounted_can_be_used(name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in deployment.settings_variables(our_services()[name], secrets).items():
        monkeypatch.setenv(variable, value)
    settings = SETTINGS[process(our_services()[name])]()
    if name == "worker":
        assert load_signer(settings.task_signing_key_file)  # type: ignore[attr-defined]
        assert load_payload_keys(settings.temporal_payload_key_file)  # type: ignore[attr-defined]
    if name in ("orchestrator-public", "webhooks"):
        assert load_webhook_keys(settings.webhook_key_file)  # type: ignore[attr-defined]
    if isinstance(settings, OrchestratorSettings):
        assert settings.key_set_file is not None
        carried = KeySetFile(settings.key_set_file).current()
        assert (carried.serial, len(carried.verifying_keys)) == (1, 1)
        if name == "orchestrator-node":
            assert settings.node_ca_certificate_file is not None
            assert load_pem_x509_certificates(settings.node_ca_certificate_file.read_bytes())


@pytest.mark.parametrize(
    "name",
    [name for name, service in services().items() if uses_postgresql(service)],
)
def test_postgresql_is_verified_by_each_container_that_uses_it(
    name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = our_services()[name]
    assert service["environment"]["PGSSLROOTCERT"] == "/run/secrets/server_ca_certificate"
    assert "server_ca_certificate" in mounted_secrets(service).values()
    for variable, value in deployment.settings_variables(service, secrets).items():
        monkeypatch.setenv(variable, value)
    assert SETTINGS[process(service)]().database_url.endswith("@postgres:5432/berth?sslmode=verify-full")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", [name for name, service in our_services().items() if "BERTH_TEMPORAL_ADDRESS" in service["environment"]]
)
def test_temporal_is_reached_over_tls_with_a_client_certificate(
    name: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = our_services()[name]
    for variable, value in deployment.settings_variables(service, secrets).items():
        monkeypatch.setenv(variable, value)
    connection = read_connection(service["environment"]["BERTH_TEMPORAL_ADDRESS"], SETTINGS[process(service)]())  # type: ignore[arg-type]
    assert connection.tls is not None
    assert connection.ca == (secrets / "server_ca_certificate.pem").read_bytes()
    assert connection.certificate == (secrets / "temporal_client_certificate.pem").read_bytes()
    assert connection.server_name == "temporal"


def test_temporal_requires_certificates_of_its_clients_and_of_its_own_services() -> None:
    """The names of the variables are those of the image's configuration template (temporalio/temporal, common/config)."""
    environment, mounted = services()["temporal"]["environment"], mounted_secrets(services()["temporal"])
    assert environment["TEMPORAL_TLS_REQUIRE_CLIENT_AUTH"] == "true"
    named = {name: mounted[value] for name, value in environment.items() if value in mounted}
    assert named == {
        "TEMPORAL_TLS_FRONTEND_CERT": "temporal_certificate", "TEMPORAL_TLS_FRONTEND_KEY": "temporal_key",
        "TEMPORAL_TLS_CLIENT1_CA_CERT": "server_ca_certificate", "TEMPORAL_TLS_SERVER_CERT": "temporal_certificate",
        "TEMPORAL_TLS_SERVER_KEY": "temporal_key", "TEMPORAL_TLS_SERVER_CA_CERT": "server_ca_certificate",
    }  # fmt: skip
    assert {environment[f"TEMPORAL_TLS_{of}_SERVER_NAME"] for of in ("FRONTEND", "INTERNODE")} == {"temporal"}


def test_only_migrations_own_the_schema_and_each_process_has_its_role(secrets: Path) -> None:
    roles = {}
    for name, service in our_services().items():
        address = deployment.settings_variables(service, secrets).get("BERTH_DATABASE_URL", "//none:")
        roles[name] = address.partition("//")[2].partition(":")[0]
    assert roles == {
        "image-check": "none", "migrate": "berth", "operator": Role.OPERATOR, "orchestrator-public": Role.PUBLIC_API,
        "orchestrator-node": Role.NODE_API, "issuer": Role.ISSUER, "relay": Role.RELAY, "worker": Role.WORKER,
        "webhooks": Role.WEBHOOKS, "audit-stream": Role.AUDIT_STREAM,
    }  # fmt: skip


def test_only_the_issuer_has_the_key_of_the_node_ca(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [name for name, service in services().items() if "node_ca_key" in mounted_secrets(service).values()] == [
        "issuer"
    ]
    for variable, value in deployment.settings_variables(our_services()["issuer"], secrets).items():
        monkeypatch.setenv(variable, value)
    authority = load_authority(IssuerSettings())
    issued = authority.issue(ec.generate_private_key(ec.SECP256R1()).public_key(), UUID(int=7))
    assert issued.pem.startswith("-----BEGIN CERTIFICATE-----")


def test_the_node_listener_has_its_certificate_and_the_public_one_does_not() -> None:
    node = our_services()["orchestrator-node"]["environment"]
    public = our_services()["orchestrator-public"]["environment"]
    assert {"BERTH_NODE_TLS_CERTIFICATE_FILE", "BERTH_NODE_TLS_KEY_FILE"} <= node.keys()
    assert not {"BERTH_NODE_TLS_CERTIFICATE_FILE", "BERTH_NODE_TLS_KEY_FILE"} & public.keys()


@pytest.mark.parametrize("name", services())
def test_files_named_by_variables_are_mounted_and_declared(name: str) -> None:
    mounted = mounted_secrets(services()[name])
    assert set(mounted.values()) <= deployment.compose()["secrets"].keys()
    for variable, value in services()[name].get("environment", {}).items():
        if value.startswith("/run/secrets/"):
            assert value in mounted, f"{variable} names a file that is not mounted"


def test_every_secret_is_made_used_and_nowhere_else(secrets: Path) -> None:
    declared = deployment.compose()["secrets"]
    used = {source for service in services().values() for source in mounted_secrets(service).values()}
    assert used == declared.keys()
    for name in declared:
        assert deployment.secret_file(name, secrets).read_text().strip(), f"make-secrets makes no {name}"
    for service in services().values():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|PWD|SECRET|TOKEN|_KEY(_FILE)?$", variable):
                assert value.startswith("/run/secrets/"), f"the compose file contains the value of {variable}"


def test_there_are_no_default_passwords_and_no_unset_variables() -> None:
    text = (deployment.DEPLOY / "compose.yaml").read_text()
    found = list(VARIABLE.finditer(text))
    assert len(found) == text.count("${")
    assert {match["name"] for match in found} == deployment.example_environment().keys()
    assert {match["name"] for match in found if match["kind"] == "-"} == {
        "PUBLIC_LISTEN", "NODE_LISTEN", "CONSOLE_LISTEN", "FOUR_EYES", "PUBLIC_API_URL",
    }  # fmt: skip
    assert all(match["kind"] for match in found), "a variable that is unset must be refused"


@pytest.mark.parametrize("name", services())
def test_images_are_pinned(name: str) -> None:
    image = services()[name]["image"]
    _, colon, tag = image.rpartition(":")
    assert colon, f"{image} has no tag"
    assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?", tag), f"{image} is not pinned to a version"


@pytest.mark.parametrize("name", RUNNING)
def test_what_keeps_running_has_a_health_check_limits_and_bounded_logs(name: str) -> None:
    service = RUNNING[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert {"cpus", "memory"} <= service["deploy"]["resources"]["limits"].keys()
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@pytest.mark.parametrize("name", [name for name in RUNNING if "build" in RUNNING[name]])
def test_health_is_asked_on_the_metrics_port(name: str) -> None:
    service = RUNNING[name]
    assert f":{service['environment']['BERTH_METRICS_PORT']}/ok'" in service["healthcheck"]["test"][-1]


@pytest.mark.parametrize("name", our_services())
def test_processes_of_ours_are_not_root(name: str) -> None:
    user, group = our_services()[name]["user"].split(":")
    assert int(user) > 0
    assert int(group) > 0


@pytest.mark.parametrize("name", services())
def test_the_order_of_start_can_be_kept(name: str) -> None:
    for other, how in services()[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in services()[other]
        else:
            assert how["condition"] == "service_completed_successfully"
            assert other in JOBS
            assert services()[other]["restart"].startswith("on-failure")


def test_nothing_starts_before_the_schema() -> None:
    for name in RUNNING:
        if "build" in RUNNING[name]:
            assert "migrate" in RUNNING[name]["depends_on"], name


def test_only_the_three_listeners_are_reachable() -> None:
    """Public, console and node listener: the ports that the page for operators lists, and no others."""
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    ports = {name: [line.rpartition(":")[2] for line in lines] for name, lines in published.items()}
    assert ports == {"orchestrator-public": ["8080", "8444"], "orchestrator-node": ["8443"]}
    assert {name for name, service in services().items() if "edge" in service.get("networks", ())} == published.keys()
    page = (Path(__file__).parents[2] / "docs/how-to/deploy.md").read_text()
    _, _, reachable = page.partition("## 3. Make it reachable")
    listed = [line.split("|")[1].strip() for line in reachable.partition("Everything else")[0].splitlines()[4:] if line]
    assert sorted(listed) == ["8080", "8443", "8444"]


def test_processes_may_open_as_many_files_as_they_accept_connections() -> None:
    limits = {
        name: service["ulimits"]["nofile"] for name, service in our_services().items() if "healthcheck" in service
    }
    assert {"orchestrator-public", "orchestrator-node", "worker"} <= limits.keys()
    most = OrchestratorSettings.model_fields["connections_max"].default
    assert all(limit["soft"] == limit["hard"] > 2 * most for limit in limits.values())


def test_the_audit_is_not_streamed_by_default() -> None:
    assert services()["audit-stream"]["profiles"] == ["audit-stream"]


def test_only_the_webhook_sender_reaches_the_internet() -> None:
    assert [name for name, service in services().items() if "outside" in service.get("networks", ())] == ["webhooks"]
    internal = {name for name, network in deployment.compose()["networks"].items() if network.get("internal")}
    elsewhere = {name for name, service in our_services().items() if not set(service.get("networks", ())) <= internal}
    assert elsewhere - {"orchestrator-public", "orchestrator-node"} == {"webhooks"}


def test_a_container_is_on_the_networks_of_the_servers_that_it_talks_to() -> None:
    networks = deployment.compose()["networks"]
    assert {name for name, network in networks.items() if network.get("internal")} == {
        "database",
        "log",
        "workflows",
        "api",
    }
    for name, service in services().items():
        on = set(service.get("networks", ()))
        environment = service.get("environment", {})
        wanted = {"database"} if uses_postgresql(service) else set()
        wanted |= {"database"} if "temporal_database_password" in mounted_secrets(service).values() else set()
        wanted |= {"workflows"} if {"BERTH_TEMPORAL_ADDRESS", "TEMPORAL_ADDRESS"} & environment.keys() else set()
        wanted |= {"api"} if "BERTH_API_URL" in environment else set()
        wanted |= {"log"} if "BERTH_NATS_CA_FILE" in environment else set()
        serves = {"postgres": "database", "nats": "log", "temporal": "workflows", "orchestrator-public": "api"}
        wanted |= {serves[name]} if name in serves else set()
        wanted |= {"database"} if "postgres_password" in mounted_secrets(service).values() else set()
        assert on - {"edge", "outside"} == wanted, name


NEEDED_CAPABILITIES = {
    "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"},
    "nats-data-owner": {"CHOWN", "DAC_READ_SEARCH"},
}
"""What the entrypoint of a container needs that begins as root; no other container does, or has capabilities."""
WRITABLE = {"temporal"}
"""Containers without a read-only root file system; the compose file says why."""


@pytest.mark.parametrize("name", services())
def test_containers_have_no_rights_that_they_do_not_need(name: str) -> None:
    service = services()[name]
    assert service.get("read_only", False) is (name not in WRITABLE)
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("cap_add", ())) == NEEDED_CAPABILITIES.get(name, set())
    assert service["security_opt"] == ["no-new-privileges:true", "seccomp=builtin"]
    if name not in NEEDED_CAPABILITIES:
        assert int(service["user"].split(":")[0]) > 0


@pytest.mark.parametrize("name", ["nats", "nats-data-owner"])
def test_nats_runs_as_the_owner_of_its_volume(name: str) -> None:
    owner = services()["nats-data-owner"]["entrypoint"]
    assert owner == ["/bin/chown", "-R", services()["nats"]["user"], "/data"]
    assert "nats-data:/data" in services()[name]["volumes"]
    waits = services()["nats"]["depends_on"]["nats-data-owner"]
    assert waits == {"condition": "service_completed_successfully"}


def test_what_postgresql_writes_is_a_volume_or_memory() -> None:
    service = services()["postgres"]
    paths = {entry.split(":")[0] for entry in service["tmpfs"]}
    assert paths == {"/run/tls", "/run/postgresql", "/tmp"}
    written = [entry for entry in service["volumes"] if not entry.endswith(":ro")]
    assert written == ["postgres-data:/var/lib/postgresql"]


@pytest.mark.parametrize("name", services())
def test_the_filter_of_system_calls_is_on(name: str) -> None:
    service = services()[name]
    assert not service.get("privileged", False)
    assert "seccomp=builtin" in service["security_opt"], "also where the daemon's default is another, or none"
    assert not [option for option in service["security_opt"] if "unconfined" in option]
    assert not {"devices", "cgroup", "pid", "ipc", "userns_mode"} & service.keys()


def test_nothing_starts_before_the_images_are_checked() -> None:
    checked = {"image-check"}
    while more := {
        name for name, service in services().items() if name not in checked and checked & service.get("depends_on", {}).keys()
    }:  # fmt: skip
        checked |= more
    assert services().keys() - checked == {"operator"}, "which is run by hand"
    listed = services()["image-check"]["environment"]["IMAGES"].split()
    assert set(listed) == {service["image"] for service in services().values()}


@pytest.mark.parametrize(
    ("required", "images", "status"),
    [
        ("false", "postgres:18.4", 0),
        ("true", f"postgres@sha256:{'a' * 64} registry.example:5000/nats:2@sha256:{'0' * 64}", 0),
        ("true", f"postgres@sha256:{'a' * 64} nats:2.15.1", 1),
        ("true", "postgres@sha256:abc", 1),
        ("true", "postgres", 1),
        ("yes", f"postgres@sha256:{'a' * 64}", 2),
    ],
)
def test_images_without_digest_are_refused_where_digests_are_required(required: str, images: str, status: int) -> None:
    done = subprocess.run(
        ["/bin/sh", str(deployment.DEPLOY / "check-images.sh")],
        env={**os.environ, "IMAGE_DIGESTS_REQUIRED": required, "IMAGES": images}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == status
    assert ("name it by digest" in done.stderr) == (status == 1)


@pytest.mark.parametrize("name", services())
def test_mounted_files_exist(name: str) -> None:
    for volume in services()[name].get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (deployment.DEPLOY / source).is_file(), source
        else:
            assert source in deployment.compose()["volumes"]
