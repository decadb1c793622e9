"""SSH keys: which are let in, what is stored, and that tenants see only their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from orchestrator.tenants.ssh_key_format import read_ssh_public_key
from tests.api.calling import Caller, at_once, new_tenant, problem, refusal, ssh_key

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey | dsa.DSAPublicKey


def line_of(key: PublicKey) -> str:
    """A key as OpenSSH writes it."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def test_a_key_is_added_listed_found_and_removed(admin: Caller) -> None:
    tenant = new_tenant(admin)
    line = ssh_key()
    made = tenant.make("/ssh-keys", {"name": "laptop", "public_key": f"  {line}\n"})
    assert made["public_key"] == line
    assert tenant.get(f"/ssh-keys/{made['id']}") == made
    assert tenant.get("/ssh-keys")["items"] == [made]
    assert tenant.call("DELETE", f"/ssh-keys/{made['id']}").status_code == 204
    problem(tenant.call("GET", f"/ssh-keys/{made['id']}"), 404, "not_found")
    problem(tenant.call("DELETE", f"/ssh-keys/{made['id']}"), 404, "not_found")
    assert tenant.get("/ssh-keys")["items"] == []


def test_another_tenants_key_is_not_found(admin: Caller) -> None:
    owner, other = new_tenant(admin), new_tenant(admin)
    key = owner.make("/ssh-keys", {"name": "laptop", "public_key": ssh_key()})
    problem(other.call("GET", f"/ssh-keys/{key['id']}"), 404, "not_found")
    problem(other.call("DELETE", f"/ssh-keys/{key['id']}"), 404, "not_found")
    assert other.get("/ssh-keys")["items"] == []
    owner.get(f"/ssh-keys/{key['id']}")


def test_name_and_key_are_each_there_once(admin: Caller) -> None:
    tenant, line = new_tenant(admin), ssh_key()
    made = tenant.make("/ssh-keys", {"name": "laptop", "public_key": line})
    other_comment = " ".join(line.split()[:2]) + " elsewhere"
    for name, public_key in (("laptop", ssh_key()), ("desktop", line), ("desktop", other_comment)):
        answer = tenant.call("POST", "/ssh-keys", {"name": name, "public_key": public_key})
        assert problem(answer, 409, "already_exists")["existing_id"] == made["id"]


def test_of_simultaneous_adds_of_one_name_exactly_one_succeeds(admin: Caller) -> None:
    tenant = new_tenant(admin)
    adds = [lambda: tenant.call("POST", "/ssh-keys", {"name": "laptop", "public_key": ssh_key()})] * 6
    assert sorted(answer.status_code for answer in at_once(*adds)) == [201] + [409] * 5
    assert len(tenant.get("/ssh-keys")["items"]) == 1


def test_operators_have_no_ssh_keys(admin: Caller) -> None:
    assert refusal(admin.call("POST", "/ssh-keys", {"name": "x", "public_key": ssh_key()})) == (403, "forbidden")


@pytest.mark.parametrize(
    "key",
    [
        ed25519.Ed25519PrivateKey.generate().public_key(),
        ec.generate_private_key(ec.SECP521R1()).public_key(),
        rsa.generate_private_key(65537, 2048).public_key(),
    ],
)
def test_fingerprints_are_those_of_ssh_keygen(key: PublicKey, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(line_of(key))
    printed = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    assert read_ssh_public_key(line_of(key)).fingerprint == printed.stdout.split()[1]


GOOD = ssh_key()
BAD = {
    "empty": "",
    "two lines": f"{GOOD}\n{ssh_key()}",
    "options": f'command="/bin/sh" {GOOD}',
    "no body": "ssh-ed25519",
    "junk body": "ssh-ed25519 AAAA",
    "another type's body": GOOD.replace("ssh-ed25519", "ssh-rsa", 1),
    "unknown type": GOOD.replace("ssh-ed25519", "ssh-ed448", 1),
    "short RSA": line_of(rsa.generate_private_key(65537, 1024).public_key()),
    "long comment": f"{GOOD} {'x' * 256}",
    "NUL": f"{GOOD}\x00",
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD.keys())
def test_unsafe_or_unreadable_keys_are_refused(admin: Caller, line: str) -> None:
    tenant = new_tenant(admin)
    document = problem(tenant.call("POST", "/ssh-keys", {"name": "x", "public_key": line}), 422, "invalid")
    assert document["errors"][0]["field"] == "public_key"
