"""`metal.rescue` writes the tenant's keys and a new host key into memory, and opens no disk."""

from __future__ import annotations

import base64
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError

from node_agent.deploy_system.effects.contract import ToolRun, WorkFailed
from node_agent.deploy_system.effects.rescuing import rescue
from node_agent.wire.deploy_tasks import DeployFailureCode, MetalRescueParameters
from tests.deploy_system.effects.machines import Machine

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF0k3cl2iTdLPy4cOSZ8sjmqPXOmSmhNdqbLgbQpXa9t"


def parameters(*keys: str) -> MetalRescueParameters:
    return MetalRescueParameters(deploy_epoch=1, ssh_public_keys=list(keys))


def strings(content: bytes) -> list[bytes]:
    """The strings of SSH (RFC 4251) in the content."""
    found = []
    while content:
        length = int.from_bytes(content[:4], "big")
        found.append(content[4 : 4 + length])
        content = content[4 + length :]
    return found


def test_the_keys_of_the_tenant_and_a_new_host_key_are_prepared(machine: Machine) -> None:
    machine.tools["dropbear"] = lambda command: ToolRun(0, "Dropbear v2022.83")
    disk = machine.add_disk("vda", "S1")
    before = disk.stat()
    first = rescue(machine.host, parameters(f"{KEY} someone@example.com", "ssh-rsa AAAA"), machine.progress)
    place = machine.root / "run/rescue"
    assert (place / "authorized_keys").read_text() == f"{KEY}\nssh-rsa AAAA\n", "type and key, without the comment"
    kind, pair = strings((place / "host_key").read_bytes())
    assert (kind, len(pair)) == (b"ssh-ed25519", 64)
    key = Ed25519PrivateKey.from_private_bytes(pair[:32])
    public = key.public_key()
    assert pair[32:] == public.public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert first.host_key == public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    for file in place.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert machine.ran == [["dropbear", "-V"]]
    assert (disk.stat().st_atime_ns, disk.stat().st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)
    assert rescue(machine.host, parameters(KEY), machine.progress).host_key != first.host_key
    assert (place / "authorized_keys").read_text() == f"{KEY}\n", "what runs again lets in these keys alone"


def test_a_medium_without_an_ssh_server_is_named(machine: Machine) -> None:
    machine.tools["dropbear"] = lambda command: ToolRun(127, "dropbear is not on the medium")
    with pytest.raises(WorkFailed) as failed:
        rescue(machine.host, parameters(KEY), machine.progress)
    assert failed.value.code is DeployFailureCode.RESCUE_UNAVAILABLE
    assert not (machine.root / "run/rescue").exists()


@pytest.mark.parametrize(
    "line",
    [
        f'command="/bin/sh" {KEY}', f"{KEY}\n{KEY}", f"{KEY} a\n{KEY}", "ssh-ed25519", "", f" {KEY}", f"{KEY}\r",
        f"{KEY}\x0bssh-rsa AAAA", "ssh-ed25519 " + base64.b64encode(b"x" * 16_384).decode(),
    ],
)  # fmt: skip
def test_a_key_is_one_line_without_options(line: str) -> None:
    with pytest.raises(ValidationError):
        parameters(line)


def test_a_rescue_has_at_least_one_key() -> None:
    with pytest.raises(ValidationError):
        parameters()
