"""`deploy/sign-key-set`: signs, with openssl alone, what agents trust; the root key may be elsewhere."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from node_agent.key_set import (
    KeySet,
    open_key_set,
    read_envelope,
    read_public_keys,
    root_keys,
    sign_key_set,
    task_key,
)
from orchestrator.tasks.signing import load_signer
from tests.deploy import deployment
from tests.node_agent.authority import Authority


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The secrets of a new deployment; the root is beside them."""
    deployment.make_secrets(tmp_path / "secrets")
    return tmp_path / "secrets"


def signed(secrets: Path) -> KeySet:
    """The key set as an agent that pins the deployment's root reads it."""
    envelope = read_envelope((secrets / "key_set.json").read_bytes())
    return open_key_set(envelope, root_keys(read_public_keys(secrets / "root_public_keys.pem")))


def sign(root: Path, secrets: Path) -> subprocess.CompletedProcess[str]:
    """Run deploy/sign-key-set."""
    command = [str(deployment.DEPLOY / "sign-key-set"), str(root), str(secrets)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def replace_task_key(secrets: Path) -> subprocess.CompletedProcess[str]:
    """The first step of the rotation of the task signing key."""
    (secrets / "task_signing_key.pem").unlink()
    command = [str(deployment.DEPLOY / "make-secrets"), str(secrets), *deployment.LISTENER_NAMES]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def public_pem(key: Ed25519PrivateKey) -> str:
    """The public key."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def test_a_new_deployment_has_a_signed_key_set_and_a_root_in_a_place_of_its_own(secrets: Path) -> None:
    key_set = signed(secrets)
    assert key_set.serial == 1
    assert [key.key_id for key in key_set.task_keys] == [load_signer(secrets / "task_signing_key.pem").key_id]
    assert key_set.node_cas == [(secrets / "node_ca_certificate.pem").read_text()]
    assert key_set.deploy_cas == [(secrets / "deploy_ca_certificate.pem").read_text()]
    root = secrets.parent / "root"
    assert {file.name for file in root.iterdir()} == {"root_key.pem", "key_set_serial"}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (root, root / "root_key.pem")] == [0o700, 0o600]
    private = (root / "root_key.pem").read_bytes()
    assert not [file.name for file in secrets.iterdir() if file.is_file() and private in file.read_bytes()]


def test_it_signs_only_what_changed_and_its_serial_is_the_roots(secrets: Path) -> None:
    root = secrets.parent / "root"
    assert (sign(root, secrets).returncode, signed(secrets).serial) == (0, 1)
    assert replace_task_key(secrets).returncode == 0
    assert (signed(secrets).serial, len(signed(secrets).task_keys)) == (2, 2)
    # A key set that an attacker has put into the deployment changes no serial.
    other = Ed25519PrivateKey.generate()
    forged = deployment_of(other, serial=9_000_000_000)
    (secrets / "key_set.json").write_text(forged)
    assert sign(root, secrets).returncode == 0
    assert signed(secrets).serial == 3
    (secrets / "key_set.json").unlink()
    assert sign(root, secrets).returncode == 0
    assert signed(secrets).serial == 4


def recovered(secrets: Path) -> None:
    """The secrets as an escrow returns them, which has neither list of CAs, completed by make-secrets."""
    (secrets / "node_ca_certificates.pem").unlink()
    (secrets / "deploy_ca_certificates.pem").unlink(missing_ok=True)
    assert replace_task_key(secrets).returncode == 0


def test_a_recovery_brings_back_the_cas_of_deploy_systems_that_the_key_set_names(secrets: Path) -> None:
    named = secrets / "deploy_ca_certificates.pem"
    named.write_text(named.read_text() + (secrets / "node_ca_certificate.pem").read_text())
    assert sign(secrets.parent / "root", secrets).returncode == 0
    before = named.read_text()
    recovered(secrets)
    assert named.read_text() == before
    assert len(signed(secrets).deploy_cas) == 2


def test_a_recovery_of_an_earlier_deployment_adds_no_ca_of_deploy_systems(secrets: Path) -> None:
    (secrets / "deploy_ca_certificates.pem").unlink()
    assert sign(secrets.parent / "root", secrets).returncode == 0
    recovered(secrets)
    assert not (secrets / "deploy_ca_certificates.pem").exists()
    assert signed(secrets).deploy_cas == []


def test_an_earlier_deployment_adds_the_cas_of_deploy_systems_in_its_own_time(secrets: Path) -> None:
    root = secrets.parent / "root"
    (secrets / "deploy_ca_certificates.pem").unlink()
    assert sign(root, secrets).returncode == 0
    before = (secrets / "key_set.json").read_text()
    assert signed(secrets).deploy_cas == []
    assert replace_task_key(secrets).returncode == 0
    assert signed(secrets).deploy_cas == [], "make-secrets adds none: agents of earlier versions refuse such a set"
    own = (secrets / "deploy_ca_certificate.pem").read_text()
    (secrets / "deploy_ca_certificates.pem").write_text(own + (secrets / "node_ca_certificate.pem").read_text())
    assert sign(root, secrets).returncode == 0
    assert signed(secrets).deploy_cas == [own, (secrets / "node_ca_certificate.pem").read_text()]
    assert (secrets / "key_set.json").read_text() != before
    serial = signed(secrets).serial
    assert (sign(root, secrets).returncode, signed(secrets).serial) == (0, serial)


def deployment_of(root: Ed25519PrivateKey, serial: int) -> str:
    """A key set that another root has signed."""
    content = KeySet(serial=serial, task_keys=[task_key(root.public_key())], node_cas=[Authority.new().pem])
    return sign_key_set(content, root).model_dump_json()


@pytest.mark.full
def test_without_the_root_key_it_says_where_to_sign_and_another_machine_signs(secrets: Path, tmp_path: Path) -> None:
    offline = tmp_path / "offline"
    (secrets.parent / "root").rename(offline)
    refused = replace_task_key(secrets)
    assert refused.returncode == 1
    assert "run deploy/sign-key-set where the root key is" in refused.stderr
    assert not (secrets.parent / "root").exists(), "no second root is made"
    assert (signed(secrets).serial, len(signed(secrets).task_keys)) == (1, 1)
    assert sign(offline, secrets).returncode == 0
    assert (signed(secrets).serial, len(signed(secrets).task_keys)) == (2, 2)
    again = subprocess.run(
        [str(deployment.DEPLOY / "make-secrets"), str(secrets), *deployment.LISTENER_NAMES],
        capture_output=True,
        text=True,
    )
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


@pytest.mark.full
def test_a_root_that_agents_do_not_pin_signs_nothing(secrets: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (other / "root_key.pem").write_bytes(pem)
    replace_task_key(secrets)
    (secrets / "key_set.json").unlink()
    refused = sign(other, secrets)
    assert refused.returncode == 1
    assert "which agents pin" in refused.stderr
    assert not (secrets / "key_set.json").exists()
    with (secrets / "root_public_keys.pem").open("a") as file:
        file.write(public_pem(key))
    assert sign(other, secrets).returncode == 0
    assert signed(secrets).serial == 1


def test_a_task_key_is_limited_by_lines_before_it(secrets: Path) -> None:
    keys = secrets / "task_verifying_keys.pem"
    keys.write_text(f"not_before: 2026-01-01T00:00:00Z\nnot_after: 2027-01-01T00:00:00Z\n{keys.read_text()}")
    assert sign(secrets.parent / "root", secrets).returncode == 0
    (key,) = signed(secrets).task_keys
    assert key.not_before is not None
    assert key.not_after is not None
    assert (key.not_before.year, key.not_after.year) == (2026, 2027)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no PUBLIC KEY"),
        ("not_after: tomorrow\n" + public_pem(Ed25519PrivateKey.generate()), "not a time in UTC: not_after: tomorrow"),
        (
            generate_private_key(SECP256R1()).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
            "not an Ed25519 key",
        ),
    ],
)  # fmt: skip
def test_unusable_keys_are_named_and_the_set_in_use_stays(secrets: Path, content: str, said: str) -> None:
    before = (secrets / "key_set.json").read_bytes()
    (secrets / "task_verifying_keys.pem").write_text(content)
    refused = sign(secrets.parent / "root", secrets)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert (secrets / "key_set.json").read_bytes() == before
    assert json.loads(before)["payloadType"] == "application/vnd.berth.key-set+json"
