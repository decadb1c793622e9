"""Plays a module of this folder, on the kernel of this machine or on one that filters VLANs on bridges.

As a program: on the kernel that runs it. Where that one does not (it needs `BRIDGE_VLAN_FILTERING`, which kernels of
distributions have), a virtual node has Debian's.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.libvirt_driver.network.spanning.nodes import VARIABLE
from tests.libvirt_driver.network.stage import staged, why_no_networks

KINDS = ("vxlan", "vlan")
ROOT = Path(__file__).parents[4]
HOST = ROOT / "tests" / "libvirt_driver" / "vfio" / "host" / "virtual-host"
KERNEL_DIRECTORY = ROOT / "build" / "guests" / "virtual-network"
NEEDED = ("/usr/lib/qemu/virtiofsd", "/usr/bin/qemu-system-x86_64", "/usr/bin/apt-get")
MODULES = (
    "bridge 8021q veth br_netfilter nf_tables nft_ct nft_nat nft_masq nft_chain_nat nft_fib_inet nft_limit"
    " nf_conntrack_netlink nft_meta_bridge"
)
VIRTUAL_SECONDS = 1500
_SAID = "said "


def played(module: str, kind: str) -> Any:
    """What the module printed with uplinks of this kind. Skips where neither kernel can be had."""
    if kind == "vxlan" or filters_vlans():
        return staged(module, variables={VARIABLE: kind})
    absent = [path for path in NEEDED if not Path(path).exists()]
    if os.getuid() != 0 or absent or shutil.which("mkfs.ext4", path="/sbin:/usr/sbin") is None:
        pytest.skip(
            f"this kernel filters no VLANs on bridges, and no virtual node can run: {', '.join(absent) or 'it needs root'}"
        )
    environment = {**os.environ, "MODULES": MODULES, "IOMMU": "off", "SECONDS_MAX": str(VIRTUAL_SECONDS)}
    done = subprocess.run(
        [str(HOST), str(KERNEL_DIRECTORY), f"cd {ROOT}; {sys.executable} -m {__name__} {module} {kind}"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line.removeprefix(_SAID) for line in done.stdout.splitlines() if line.startswith(_SAID)]
    if not said and done.returncode == 1 and "apt-get update" in done.stderr:
        pytest.skip(f"this kernel filters no VLANs on bridges: {done.stderr.strip()}")
    assert said, f"{done.stdout[-3000:]}{done.stderr[-1000:]}"
    return json.loads(said[-1])


@functools.cache
def filters_vlans() -> bool:
    """Whether bridges of this kernel filter VLANs; false where it makes no tenant networks at all."""
    command = ["unshare", "--net", "ip", "link", "add", "probe", "type", "bridge", "vlan_filtering", "1"]
    return why_no_networks() is None and subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    print(_SAID + json.dumps(staged(sys.argv[1], seconds=VIRTUAL_SECONDS, variables={VARIABLE: sys.argv[2]})))  # noqa: T201 - the result
