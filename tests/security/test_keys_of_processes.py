"""Each process has only the keys that it needs: the private key that signs tasks is the worker's alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic_settings import BaseSettings

from berth.local.authority import Authority, ensure_authority
from berth.local.processes import Endpoints, issuer_plan, orchestrator_plan, webhooks_plan, worker_plan
from node_agent.key_set import key_id, read_public_keys
from orchestrator.nodes.issuer_settings import IssuerSettings
from orchestrator.settings import Settings
from orchestrator.tasks.signing import load_signer
from tests.deploy import deployment
from worker.settings import Settings as WorkerSettings
from worker.webhooks.settings import WebhookSettings

PAGE = deployment.ROOT / "docs" / "explanation" / "architecture.md"
SETTINGS: Mapping[str, type[BaseSettings]] = {
    "issuer": IssuerSettings, "public API": Settings, "node API": Settings, "worker": WorkerSettings,
    "webhook sender": WebhookSettings,
}  # fmt: skip
SERVICES = {
    "issuer": "issuer",
    "public API": "orchestrator-public",
    "node API": "orchestrator-node",
    "worker": "worker",
    "webhook sender": "webhooks",
}
PRIVATE = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def table_of_keys() -> dict[tuple[str, str], bool]:
    """By process and variable: whether the page says that the process has the key."""
    lines = PAGE.read_text().partition("\n## Keys\n")[2].lstrip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: lines.index("")]]
    processes = rows[0][1:]
    found = {}
    for row in rows[2:]:
        (variable,) = re.findall(r"`(BERTH_\w+)`", row[0])
        found.update({(process, variable): cell == "yes" for process, cell in zip(processes, row[1:], strict=True)})
    return found


def environments(files: Authority) -> dict[str, Mapping[str, str]]:
    """The environment of each process of the local stack."""
    endpoints = Endpoints("postgresql://x@127.0.0.1:1/x", "", "", 1, 2, console_port=4)
    return {
        "issuer": issuer_plan(endpoints, files, 3).environment,
        "public API": orchestrator_plan("public", endpoints, files, 3).environment,
        "node API": orchestrator_plan("node", endpoints, files, 3).environment,
        "worker": worker_plan(endpoints, files, 3).environment,
        "webhook sender": webhooks_plan(endpoints, files, 3).environment,
    }


@pytest.mark.parametrize(("process", "variable"), table_of_keys())
def test_the_page_says_which_process_has_which_key(tmp_path: Path, process: str, variable: str) -> None:
    has = table_of_keys()[process, variable]
    local = environments(ensure_authority(tmp_path, "berth.local"))[process]
    deployed = deployment.services()[SERVICES[process]]["environment"]
    assert (variable in local) == has
    assert (variable in deployed) == has
    known = deployment.known_variables(SETTINGS[process])
    if has or variable in ("BERTH_NODE_CA_KEY_FILE", "BERTH_TASK_SIGNING_KEY_FILE"):
        assert (variable in known) == has


def test_no_listener_is_given_a_file_with_a_private_key_but_its_own_for_tls(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    deployment.make_secrets(directory)
    local = environments(ensure_authority(tmp_path, "berth.local"))
    own = {"public API": "BERTH_CONSOLE_TLS_KEY_FILE", "node API": "BERTH_NODE_TLS_KEY_FILE"}
    for process, key in own.items():
        deployed = deployment.settings_variables(deployment.services()[SERVICES[process]], directory)
        for environment in (local[process], deployed):
            files = {name: Path(value) for name, value in environment.items() if name.endswith("_FILE")}
            private = {name for name, file in files.items() if PRIVATE.search(file.read_bytes())}
            assert files.keys() > private
            assert private == {key}


@pytest.mark.full
@pytest.mark.quick("public")
@pytest.mark.parametrize("listen", ["public", "node", "both", "issuer"])
def test_no_orchestrator_starts_with_the_key_that_signs_tasks(tmp_path: Path, listen: str) -> None:
    key = ensure_authority(tmp_path, "berth.local").task_signing_key
    environment = {"BERTH_TASK_SIGNING_KEY_FILE": str(key), "BERTH_DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}
    ended = subprocess.run(
        [sys.executable, "-m", "orchestrator", "--listen", listen],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "BERTH_TASK_SIGNING_KEY_FILE is set; only the worker may have the key that signs tasks" in ended.stderr


def test_the_public_keys_are_those_of_the_keys_that_sign(tmp_path: Path) -> None:
    """make-secrets keeps the public keys of earlier signing keys, so that agents trust old and new during a rotation."""
    directory = tmp_path / "secrets"
    deployment.make_secrets(directory)
    earlier = load_signer(directory / "task_signing_key.pem").key_id
    (directory / "task_signing_key.pem").unlink()
    deployment.make_secrets(directory)
    later = load_signer(directory / "task_signing_key.pem").key_id
    deployment.make_secrets(directory)
    public = directory / "task_verifying_keys.pem"
    assert [key_id(key) for key in read_public_keys(public)] == [earlier, later]
    files = ensure_authority(tmp_path, "berth.local")
    assert [key_id(key) for key in read_public_keys(files.task_verifying_keys)] == [
        load_signer(files.task_signing_key).key_id
    ]


def test_a_file_of_public_keys_with_anything_else_is_refused(tmp_path: Path) -> None:
    files = ensure_authority(tmp_path, "berth.local")
    with pytest.raises(ValueError, match="holds a PRIVATE KEY"):
        read_public_keys(files.task_signing_key)
    other = tmp_path / "other.pem"
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    other.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(ValueError, match="not an Ed25519 key"):
        read_public_keys(other)
    other.write_text("")
    with pytest.raises(ValueError, match="holds no PEM public key"):
        read_public_keys(other)
    assert key_id(Ed25519PrivateKey.generate().public_key()) != load_signer(files.task_signing_key).key_id
