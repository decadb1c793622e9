"""`metal.rescue`: prepares the tenant's rescue system. Opens no disk, and starts nothing.

Init starts the SSH server, once the loop has ended with the hand-over (`deploy/metal/deploy-init`).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from node_agent.deploy_system.effects.contract import Host, Progress
from node_agent.deploy_system.effects.steps import step
from node_agent.wire.deploy_tasks import DeployFailureCode, MetalRescueParameters, MetalRescueReport

DIRECTORY: Final = "rescue"
"""Below the host's scratch directory: `authorized_keys` and `host_key`, for init."""
_KEY_TYPE: Final = b"ssh-ed25519"
_SERVER_SECONDS: Final = 10.0


def rescue(host: Host, parameters: MetalRescueParameters, progress: Progress) -> MetalRescueReport:
    """Write the tenant's keys and a new host key into memory; return its public part. Raises WorkFailed, Interrupted."""
    began = host.monotonic()
    with step(host, progress, "rescue") as preparing:
        found = host.run(["dropbear", "-V"], _SERVER_SECONDS)
        if found.status != 0:
            raise preparing.failed(DeployFailureCode.RESCUE_UNAVAILABLE, f"dropbear -V: {found.output[:200]}")
        key = Ed25519PrivateKey.generate()
        directory = host.scratch / DIRECTORY
        directory.mkdir(mode=0o700, exist_ok=True)
        # Type and key alone: options or a second line would let in more than the key.
        lines = (" ".join(line.split()[:2]) for line in parameters.ssh_public_keys)
        _write(directory / "authorized_keys", "".join(f"{line}\n" for line in lines).encode())
        _write(directory / "host_key", dropbear_key(key))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return MetalRescueReport(host_key=public, seconds=round(host.monotonic() - began, 3))


def dropbear_key(key: Ed25519PrivateKey) -> bytes:
    """The private key as Dropbear's files have it: the type, then seed and public key, each as a string of SSH (RFC 4251)."""
    seed = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return _string(_KEY_TYPE) + _string(seed + key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _write(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)
