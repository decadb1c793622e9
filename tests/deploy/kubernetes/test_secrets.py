"""Secrets of an installation: one for each process, of the files of deploy/make-secrets, with what it reads and nothing else."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.deploy import deployment
from tests.deploy.kubernetes.kustomization import Resource
from tests.deploy.kubernetes.manifests import FOLDERS, KUBERNETES, files, of_kind, pod, secret_manifests, workloads

IN_NO_SECRET = {
    "server_ca_key.pem", "postgres_password", "root_public_keys.pem", "task_verifying_keys.pem",
    "backup_database_url", "nats_relay_password", "nats_worker_password", "nats_reader_password", "nats_operator_password",
    "nats_audit_password", "nats_auditor_password", "nats_reader_url", "nats_auditor_url",
}  # fmt: skip
"""What no pod of an installation reads: keys and passwords of people, and what is in another file as well."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that deploy/make-secrets filled."""
    found = tmp_path_factory.mktemp("kubernetes") / "secrets"
    deployment.make_secrets(found)
    return found


@pytest.fixture(scope="module")
def secrets(directory: Path) -> dict[str, Resource]:
    """What deploy/kubernetes/secret-manifests prints."""
    return secret_manifests(directory)


def content(secret: Resource, key: str) -> bytes:
    """An entry, decoded."""
    return base64.b64decode(secret["data"][key], validate=True)


def test_they_are_objects_of_the_api(secrets: dict[str, Resource]) -> None:
    for secret in secrets.values():
        kubernetes_validate.validate(secret, "1.37", strict=True)
        assert secret["kind"] == "Secret"


@pytest.mark.parametrize(("folder", "name"), [(folder, name) for folder in FOLDERS for name in workloads(folder)])
def test_the_secret_of_a_process_holds_what_it_reads(
    folder: str, name: str, secrets: dict[str, Resource], directory: Path
) -> None:
    workload = workloads(folder)[name]
    (volume,) = [one for one in pod(workload)["volumes"] if "secret" in one]
    assert volume["secret"]["secretName"] == f"berth-{name}"
    assert volume["secret"]["defaultMode"] == 0o440
    secret = secrets[f"berth-{name}"]
    assert secret["data"].keys() == set(files(workload).values())
    for file in secret["data"]:
        assert content(secret, file) == (directory / file).read_bytes(), file


@pytest.mark.parametrize("folder", ["small", "production"])
def test_the_secrets_of_postgresql_are_there(folder: str, secrets: dict[str, Resource], directory: Path) -> None:
    spec = of_kind(folder, "Cluster")["berth-postgres"]["spec"]
    authority, certificate = (secrets[spec["certificates"][name]] for name in ("serverCASecret", "serverTLSSecret"))
    assert set(authority["data"]) == {"ca.crt"}, "the key of the authority is not in the cluster"
    assert content(authority, "ca.crt") == (directory / "server_ca_certificate.pem").read_bytes()
    assert content(certificate, "tls.crt") == (directory / "postgres_certificate.pem").read_bytes()
    assert content(certificate, "tls.key") == (directory / "postgres_key.pem").read_bytes()
    named = {one["name"]: one["passwordSecret"]["name"] for one in spec["managed"]["roles"]}
    named["berth"] = spec["bootstrap"]["initdb"]["secret"]["name"]
    for role, name in named.items():
        assert secrets[name]["type"] == "kubernetes.io/basic-auth"
        assert content(secrets[name], "username").decode() == role
        assert (
            content(secrets[name], "password").decode() == (directory / f"{role}_database_password").read_text().strip()
        )
    assert {name for name in secrets if name.startswith("postgres-role-")} == set(named.values())


def test_passwords_in_the_secrets_are_those_in_the_addresses(secrets: dict[str, Resource]) -> None:
    for name in ("worker", "relay", "webhooks", "orchestrator-public", "orchestrator-node", "issuer"):
        secret = secrets[f"berth-{name}"]
        (address,) = [content(secret, key).decode() for key in secret["data"] if key.endswith("database_url")]
        role, _, password = address.removeprefix("postgresql://").partition("@")[0].partition(":")
        assert content(secrets[f"postgres-role-{role.replace('_', '-')}"], "password").decode() == password


def test_every_file_is_in_a_secret_or_read_by_no_pod(secrets: dict[str, Resource], directory: Path) -> None:
    held = {content(secret, key).strip() for secret in secrets.values() for key in secret["data"]}
    absent = {file.name for file in directory.iterdir() if file.read_bytes().strip() not in held}
    assert absent == IN_NO_SECRET
    for secret in secrets.values():
        assert not {"root_key.pem", "server_ca_key.pem"} & set(secret["data"])


def test_only_the_issuer_has_the_keys_of_the_authorities_of_nodes(secrets: dict[str, Resource]) -> None:
    for key in ("node_ca_key.pem", "deploy_ca_key.pem"):
        assert [name for name, secret in secrets.items() if key in secret["data"]] == ["berth-issuer"]
    assert [name for name, secret in secrets.items() if "task_signing_key.pem" in secret["data"]] == ["berth-worker"]


def test_a_missing_file_prints_no_secret_at_all(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    deployment.make_secrets(directory)
    (directory / "temporal_payload_keys").unlink()
    command = [str(KUBERNETES / "secret-manifests"), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"secret-manifests: {directory}/temporal_payload_keys is missing\n"
