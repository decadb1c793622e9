"""The config drive: a NoCloud volume (cloudinit.readthedocs.io, "NoCloud") with the tenant's keys and a new host key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from node_agent.deploy_system.effects.iso9660 import iso9660
from node_agent.wire.deploy_tasks import ConfigDrive

LABEL: Final = "cidata"
CONFIG_DRIVE_BYTES: Final = 4 * 2**20


@dataclass(frozen=True)
class HostKey:
    """An SSH host key: the private part goes to the disk and nowhere else."""

    private: str
    public: str


def new_host_key() -> HostKey:
    """A new Ed25519 key."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return HostKey(private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())


def volume(drive: ConfigDrive, user: str, key: HostKey) -> bytes:
    """The volume, `CONFIG_DRIVE_BYTES` long. The tenant's user data are passed on byte for byte."""
    files = {
        "meta-data": _meta_data(drive),
        "user-data": drive.user_data or "#cloud-config\n{}\n",
        "vendor-data": _vendor_data(drive, user, key),
    }
    if drive.network is not None:
        files["network-config"] = json.dumps(drive.network, indent=1)  # JSON is YAML
    written = iso9660(LABEL, {name: text.encode() for name, text in files.items()})
    if len(written) > CONFIG_DRIVE_BYTES:
        raise ValueError(f"the config drive has {len(written)} bytes; at most {CONFIG_DRIVE_BYTES} fit")
    return written.ljust(CONFIG_DRIVE_BYTES, b"\0")


def _meta_data(drive: ConfigDrive) -> str:
    keys = "".join(f"- {json.dumps(key)}\n" for key in drive.ssh_public_keys)
    return f"instance-id: {drive.instance_id}\nlocal-hostname: {drive.hostname}\npublic-keys:\n{keys}"


def _vendor_data(drive: ConfigDrive, user: str, key: HostKey) -> str:
    private = "".join(f"    {line}\n" for line in key.private.splitlines())
    return (
        "#cloud-config\n"
        f"disable_root: {'false' if user == 'root' else 'true'}\n"
        "ssh_pwauth: false\nssh_deletekeys: true\n"
        f"ssh_keys:\n  ed25519_private: |\n{private}  ed25519_public: {key.public}\n"
        f"users:\n- name: {json.dumps(user)}\n  shell: /bin/bash\n  lock_passwd: true\n  sudo: 'ALL=(ALL) NOPASSWD:ALL'\n"
        f"  ssh_authorized_keys: {json.dumps(drive.ssh_public_keys)}\n"
        "growpart: {mode: auto, devices: ['/']}\nresize_rootfs: true\n"
    )
