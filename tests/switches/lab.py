"""A site in network namespaces: a switch of Linux bridges, and hosts at its ports, each with a server.

Hosts have addresses of one subnet, whatever segment they are in, so that nothing but the switch separates them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from node_agent.switches.contract import Switch
from node_agent.switches.linux_bridge import LinuxBridge

PROVISIONING, TENANT_A, TENANT_B = 100, 1001, 1002
SERVICE = 22
FIXED = {"deploy": PROVISIONING, "bmc": PROVISIONING, "a2": TENANT_A, "b1": TENANT_B}
"""Hosts that stay in their segment: deploy server, BMC, another machine of tenant A, and one of tenant B."""
MACHINE = "machine"
ADDRESSES = {
    **{name: f"10.77.0.{number}" for number, name in enumerate([*FIXED, MACHINE], start=1)},
    "agent": "10.77.9.2",
}
HOSTS = (*FIXED, MACHINE)
FILTERING, BRIDGES = "filtering", "bridges"
MODES = (FILTERING, BRIDGES)
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_SERVER = """
import socketserver, sys
class Greeting(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(sys.argv[1].encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[2])), Greeting)
print("listening", flush=True)
server.serve_forever()
"""
_CLIENT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 4.0) as it:
        it.settimeout(4.0)
        print(it.recv(100).decode())
except OSError:
    pass
"""


def sh(text: str, namespace: str | None = None) -> str:
    """Run a shell in a namespace; its output."""
    prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
    done = subprocess.run(
        [*prefix, "sh", "-euc", text], capture_output=True, text=True, check=False, env={**os.environ, "PATH": _PATH}
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


@functools.cache
def why_no_lab(mode: str) -> str | None:
    """What this machine lacks for a switch of this mode; None if nothing."""
    missing = [name for name in ("ip", "bridge") if shutil.which(name, path=_PATH) is None]
    if os.geteuid() != 0 or missing:
        return f"namespaces need root and {', '.join(missing) or 'nothing else'}"
    name = f"bt{uuid.uuid4().hex[:8]}"
    filtering = "vlan_filtering 1 " if mode == FILTERING else ""
    try:
        sh(f"ip netns add {name}; ip -n {name} link add probe type bridge {filtering}")
    except AssertionError as error:
        return f"this kernel makes no switch of the mode {mode}: {str(error).splitlines()[-1]}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, env={"PATH": _PATH})
    return None


class Lab:
    """The namespaces of one switch and its hosts. A port is called as its host."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.name = f"bt{uuid.uuid4().hex[:8]}"
        self._servers: list[subprocess.Popen[str]] = []

    def namespace(self, host: str) -> str:
        return f"{self.name}-{host}"

    def build(self) -> None:
        sh(f"ip netns add {self.name}", None)
        if self.mode == FILTERING:
            sh("ip link add br0 type bridge vlan_filtering 1; ip link set br0 up", self.name)
        else:
            for vlan in (PROVISIONING, TENANT_A, TENANT_B):
                sh(f"ip link add seg{vlan} type bridge; ip link set seg{vlan} up", self.name)
        for host, vlan in FIXED.items():
            self.add(host)
            self.put(host, vlan)
        self.add(MACHINE)
        sh(f"ip link set {MACHINE} master {'br0' if self.mode == FILTERING else f'seg{PROVISIONING}'}", self.name)

    def add(self, host: str) -> None:
        """A host with a server, at a port of the switch that is up."""
        space = self.namespace(host)
        sh(
            f"ip netns add {space}; ip link add {host} netns {self.name} type veth peer name e0 netns {space};"
            f" ip -n {self.name} link set {host} up"
        )
        sh(f"ip link set lo up; ip addr add {ADDRESSES[host]}/24 dev e0; ip link set e0 up", space)
        self.serve(host, host)

    def serve(self, host: str, name: str) -> None:
        """A server in the host's namespace, which says its name."""
        server = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(host), sys.executable, "-Sc", _SERVER, name, str(SERVICE)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": _PATH},
        )  # fmt: skip
        self._servers.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"

    def put(self, host: str, vlan: int) -> None:
        """Have a port carry this segment, without any driver."""
        if self.mode == BRIDGES:
            sh(f"ip link set {host} master seg{vlan}", self.name)
            return
        sh(
            f"ip link set {host} master br0; bridge vlan del dev {host} vid 1;"
            f" bridge vlan add dev {host} vid {vlan} pvid untagged", self.name,
        )  # fmt: skip

    def reaches(self, host: str, other: str) -> bool:
        """Whether the host gets an answer from the server of the other one."""
        answer = subprocess.run(
            ["ip", "netns", "exec", self.namespace(host), sys.executable, "-Sc", _CLIENT, ADDRESSES[other], str(SERVICE)],
            capture_output=True, text=True, check=True, env={**os.environ, "PATH": _PATH},
        ).stdout  # fmt: skip
        return answer.strip() == other

    def reached(self, host: str = MACHINE) -> set[str]:
        """Every other host that this one reaches. They are tried at once: each that it does not reach takes seconds."""
        others = [other for other in HOSTS if other != host]
        with ThreadPoolExecutor(len(others)) as pool:
            return {
                other
                for other, is_reached in zip(others, pool.map(partial(self.reaches, host), others), strict=True)
                if is_reached
            }

    def switch(self) -> Switch:
        """The driver of this switch."""
        if self.mode == FILTERING:
            return LinuxBridge("br0", None, self.name)
        return LinuxBridge(None, "seg", self.name)

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait(10)
        for name in (*(self.namespace(host) for host in HOSTS), self.name):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, env={"PATH": _PATH})


@contextlib.contextmanager
def laboratory(mode: str) -> Iterator[Lab]:
    """A built lab, closed at the end. Skips where the kernel makes none."""
    if (reason := why_no_lab(mode)) is not None:
        pytest.skip(reason)
    lab = Lab(mode)
    try:
        lab.build()
        yield lab
    finally:
        lab.close()
