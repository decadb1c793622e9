"""The seed of a guest: a NoCloud volume (cloudinit.readthedocs.io, "NoCloud") with the keys of tenant and host.

The tenant's user-data are passed on byte for byte. cloud-init merges vendor-data and user-data by key, and user-data win for
a whole list: the platform's part is therefore a script of a multipart message, which no list replaces. It runs at every boot,
since a plain script would run at the first one alone, and a guest that is started again would never be ready.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pycdlib

from node_agent.drivers.libvirt.domain import CHANNEL
from node_agent.wire.networks import NetworkOrder

LABEL = "cidata"
BOUNDARY = "berth-vendor-data"
# A write to a virtio-serial port waits until the host has connected: in the foreground the boot would wait too.
READY_SCRIPT = r"""#!/bin/sh
port=/dev/virtio-ports/{channel}
[ -c "$port" ] || exit 0
(
  echo "BERTH-READY {nonce}" >"$port"
  cloud-init status --wait >/dev/null 2>&1
  said=$(cloud-init status --long 2>&1)
  said="$? $(printf %s "$said" | tr '\n\t' '  ' | tr -cd ' -~' | cut -c 1-1000)"
  # Repeated: what was sent to an agent that is killed at this moment is lost.
  for pause in 20 20 0; do echo "BERTH-USER-DATA {nonce} $said" >"$port"; sleep $pause; done
) </dev/null >/dev/null 2>&1 &
"""
# cloud-init 22.4 stores a per-boot script of vendor data where it runs none. A boothook runs at each boot, before the scripts
# of the last stage, and installs the script there, under a name that no part of the tenant's user data gets by its place.
BOOTHOOK = r"""#!/bin/sh
mkdir -p /var/lib/cloud/scripts/per-boot
cat >/var/lib/cloud/scripts/per-boot/berth-ready <<'END-OF-BERTH-READY'
{script}END-OF-BERTH-READY
chmod 700 /var/lib/cloud/scripts/per-boot/berth-ready
"""
PART = 'Content-Type: text/{kind}; charset="utf-8"\n\n{body}\n'


@dataclass(frozen=True)
class Seed:
    """What a guest reads."""

    instance_id: str
    hostname: str
    user: str
    ssh_public_keys: Sequence[str]
    host_key_private: str | None
    """None: the image has no cloud-init, and brings its host key."""
    host_key_public: str
    nonce: str
    user_data: str | None
    network: NetworkOrder | None = None
    network_mtu: int | None = None
    network_domain: str | None = None
    """None: the gateway answers no DNS."""


def write_seed(path: Path, seed: Seed) -> None:
    """Write the volume, readable by its owner alone: it holds the host key. Raises OSError."""
    files = {
        "meta-data": _meta_data(seed),
        "user-data": seed.user_data or "#cloud-config\n{}\n",
        "vendor-data": _vendor_data(seed),
    }
    if seed.network is not None:
        files["network-config"] = _network_config(seed.network, seed.network_mtu, seed.network_domain)
    volume = pycdlib.PyCdlib()
    volume.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL)
    content = io.BytesIO()
    for number, (name, text) in enumerate(files.items()):
        raw = text.encode()
        volume.add_fp(io.BytesIO(raw), len(raw), f"/F{number}.;1", rr_name=name, joliet_path=f"/{name}")
    volume.write_fp(content)
    volume.close()
    aside = path.with_name(f".{path.name}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.getvalue())
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)


def _meta_data(seed: Seed) -> str:
    keys = "".join(f"- {_quoted(key)}\n" for key in seed.ssh_public_keys)
    names = f"instance-id: {seed.instance_id}\nlocal-hostname: {_quoted(seed.hostname)}\nberth-nonce: {seed.nonce}\n"
    return f"{names}public-keys:\n{keys}"


def _network_config(network: NetworkOrder, mtu: int | None, domain: str | None) -> str:
    """Version 2 of cloud-init's network configuration: the leased address, and nothing by DHCP or IPv6."""
    gateway = _quoted(str(network.gateway))
    names = "" if domain is None else f"    nameservers: {{addresses: [{gateway}], search: [{_quoted(domain)}]}}\n"
    return (
        f"version: 2\nethernets:\n  tenant:\n    match: {{macaddress: {_quoted(network.mac)}}}\n"
        f"    dhcp4: false\n    dhcp6: false\n    accept-ra: false\n    link-local: []\n"
        f"{'' if mtu is None else f'    mtu: {mtu}{chr(10)}'}"
        f"    addresses: [{_quoted(f'{network.address}/{network.subnet.prefixlen}')}]\n"
        f"    routes:\n    - {{to: 0.0.0.0/0, via: {gateway}}}\n{names}"
    )


def _vendor_data(seed: Seed) -> str:
    if seed.host_key_private is None:
        return "#cloud-config\n{}\n"
    private = "".join(f"    {line}\n" for line in seed.host_key_private.splitlines())
    config = (
        "#cloud-config\n"
        f"disable_root: {'false' if seed.user == 'root' else 'true'}\n"
        "ssh_pwauth: false\nssh_deletekeys: true\n"
        f"ssh_keys:\n  ed25519_private: |\n{private}  ed25519_public: {seed.host_key_public}\n"
        f"users:\n- name: {_quoted(seed.user)}\n  shell: /bin/bash\n  lock_passwd: true\n  sudo: 'ALL=(ALL) NOPASSWD:ALL'\n"
        f"  ssh_authorized_keys: [{', '.join(map(_quoted, seed.ssh_public_keys))}]\n"
        "growpart: {mode: auto, devices: ['/']}\nresize_rootfs: true\n"
    )
    script = READY_SCRIPT.replace("{channel}", CHANNEL).replace("{nonce}", seed.nonce)
    hook = BOOTHOOK.replace("{script}", script)
    parts = (PART.format(kind="cloud-config", body=config), PART.format(kind="cloud-boothook", body=hook))
    head = f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"\nMIME-Version: 1.0\n\n'
    return head + "".join(f"--{BOUNDARY}\n{part}" for part in parts) + f"--{BOUNDARY}--\n"


def _quoted(text: str) -> str:
    """A YAML double-quoted scalar (YAML 1.2.2 §7.3.1) of any text."""
    plain = (
        char if char.isascii() and char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in text
    )
    return f'"{"".join(plain)}"'
