"""DHCP and DNS in tenant networks: one dnsmasq for each network that has guests on the node, bound to its bridge alone.

A guest gets by DHCP what is leased to it, by its MAC address, and DNS knows the names of the network's guests on all nodes. Each
process has its options as arguments and the guests in two files, which it reads again at SIGHUP. It outlives the agent: a
process with the arguments that it should have is kept until a guest of the node leaves, and every other one that uses this
directory is ended.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import structlog

from node_agent.drivers.libvirt.network.names import BRIDGE_PREFIX
from node_agent.drivers.libvirt.network.policy import Naming
from node_agent.drivers.libvirt.network.programs import NetworkError, call
from node_agent.drivers.libvirt.network.rules import Guest, Remote
from node_agent.durable_files import write_durably
from node_agent.wire.networks import NetworkOrder

log = structlog.get_logger("node_agent.network")

PROGRAM = "dnsmasq"
ACCOUNT = "dnsmasq"
"""Of Debian's package: the process is of this user, which can read the files of every network here (names and
addresses), and nothing else of the agent's."""
CAPABILITIES = "-all,+net_admin,+net_bind_service"
"""For ports 53 and 67; and dnsmasq enters a client without an address into the kernel's table of neighbours."""
END_SECONDS_MAX = 3.0
LOOK_SECONDS = 0.02
LEASE_SECONDS = 86_400
CACHED_MAX = 1_000
FORWARDED_AT_ONCE_MAX = 100
PACKET_BYTES_MAX = 1_232
"""Of answers over UDP: they are not fragmented (dnsflagday.net, 2020)."""
_AT = f"--interface={BRIDGE_PREFIX}"
_FIXED = (
    "--conf-file=/dev/null", "--pid-file", "--no-hosts", "--no-resolv", "--no-ident", "--bind-interfaces",
    "--except-interface=lo", "--domain-needed", "--bogus-priv",
    f"--cache-size={CACHED_MAX}", f"--dns-forward-max={FORWARDED_AT_ONCE_MAX}",
    f"--edns-packet-max={PACKET_BYTES_MAX}", "--leasefile-ro", "--dhcp-authoritative", "--dhcp-ignore-names", "--no-ping",
    "--quiet-dhcp",
)  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A network of the node, with its guests here and on other nodes."""

    order: NetworkOrder
    bridge: str
    guests: tuple[Guest, ...]
    remotes: tuple[Remote, ...]


def served(guests: Iterable[Guest], remotes: Iterable[Remote]) -> dict[int, Served]:
    """The networks of these guests, by VNI."""
    here: dict[int, list[Guest]] = {}
    for guest in guests:
        here.setdefault(guest.order.vni, []).append(guest)
    there = list(remotes)
    return {
        vni: Served(own[0].order, own[0].bridge, tuple(own), tuple(one for one in there if one.vni == vni))
        for vni, own in here.items()
    }


class NameServers:
    """The processes of one node. `directory` has a directory for each network.

    `naming`: None: networks have none, and those that an agent with another setting left are ended.
    """

    def __init__(self, directory: Path, naming: Naming | None, mtu: int) -> None:
        self._directory = directory
        self._naming = naming
        self._mtu = mtu
        self._known: dict[int, dict[str, str]] = {}
        """Files that the process of a network has read, as far as this object knows."""

    def serve(self, network: Served) -> bool:
        """The network's process runs and knows its guests, also after the bridge was made anew; whether it was started.

        Raises NetworkError, with the words of the program.
        """
        if self._naming is None:
            self.end(network.order.vni)
            return False
        vni, directory = network.order.vni, self._directory_of(network)
        files = {"dhcp-hosts": dhcp_hosts(network), "hosts": hosts(network, self._naming.domain)}
        arguments = options(network, directory, self._naming, self._mtu)
        running = self._processes().get(vni, {})
        # A process keeps the lease of a guest that has left, with its name. It ends before the files are written.
        stays = not _left(_read(directory / "dhcp-hosts"), files["dhcp-hosts"])
        kept = [pid for pid, shown in running.items() if stays and shown[1:] == arguments]
        _end([pid for pid in running if pid not in kept])
        # An agent that was killed before its signal has left files that the process has not read.
        knows = not self._write(directory, files) and self._known.get(vni) == files
        self._remove_directories(vni, directory)
        if not kept:
            _start(arguments)
        elif not knows:
            for pid in kept:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGHUP)
        self._known[vni] = files
        return not kept

    def end(self, vni: int) -> bool:
        """The network has neither process nor files; whether it had a process. Raises OSError."""
        running = self._processes().get(vni, {})
        self._known.pop(vni, None)
        _end(list(running))
        self._remove_directories(vni)
        return bool(running)

    def end_others(self, networks: Iterable[int]) -> list[int]:
        """End the processes of all networks but these; return theirs. What fails is logged. Raises OSError before the first."""
        wanted = set(networks)
        ended = []
        for vni in sorted({vni for vni in (*self._vnis(), *self._processes()) if vni not in wanted}):
            try:
                if self.end(vni):
                    ended.append(vni)
            except OSError as error:
                log.error("stray_name_server_stays", network=vni, why=str(error))
        return ended

    def _write(self, directory: Path, files: Mapping[str, str]) -> bool:
        """Whether a file has changed."""
        for folder in (self._directory, directory):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        changed = {name: text for name, text in files.items() if _read(directory / name) != text}
        for name, text in changed.items():
            write_durably(directory / name, text.encode(), 0o644)
        return bool(changed)

    def _directory_of(self, network: Served) -> Path:
        """Named by the bridge's number as well: a process stays bound to a bridge that is gone, and then has other arguments."""
        try:
            number = socket.if_nametoindex(network.bridge)
        except OSError as error:
            raise NetworkError(f"the bridge {network.bridge} is not there") from error
        return self._directory / f"{network.order.vni}-{number}"

    def _vnis(self) -> Iterator[int]:
        with suppress(FileNotFoundError):
            for entry in self._directory.iterdir():
                if (vni := _vni_of(entry.name)) is not None:
                    yield vni

    def _remove_directories(self, vni: int, kept: Path | None = None) -> None:
        with suppress(FileNotFoundError):
            for entry in self._directory.iterdir():
                if _vni_of(entry.name) == vni and entry != kept:
                    shutil.rmtree(entry)

    def _processes(self) -> Mapping[int, dict[int, list[str]]]:
        """The arguments of every process at a bridge of a tenant network, by VNI and process id.

        Those with this directory; and all of this network namespace, where the agent may read which one a process is in.
        """
        prefix = f"--addn-hosts={self._directory}/"
        found: dict[int, dict[int, list[str]]] = {}
        for entry in os.scandir("/proc"):
            shown = _arguments(entry.name) if entry.name.isdigit() else []
            if not shown or Path(shown[0]).name != PROGRAM:
                continue
            vni = next((one.removeprefix(_AT) for one in shown if one.startswith(_AT)), "")
            if vni.isdecimal() and (any(one.startswith(prefix) for one in shown) or _is_of_this_namespace(entry.name)):
                found.setdefault(int(vni), {})[int(entry.name)] = shown
        return found


def options(network: Served, directory: Path, naming: Naming, mtu: int) -> list[str]:
    """The arguments of a network's process."""
    order = network.order
    subnet, domain = order.subnet, naming.domain
    own = [
        f"--interface={network.bridge}", f"--addn-hosts={directory}/hosts", f"--dhcp-hostsfile={directory}/dhcp-hosts",
        f"--dhcp-range={subnet[0]},static,{subnet.netmask},{LEASE_SECONDS}", f"--domain={domain}", f"--local=/{domain}/",
        f"--dhcp-option=option:router,{order.gateway}", f"--dhcp-option=option:dns-server,{order.gateway}",
        f"--dhcp-option=option:mtu,{mtu}", f"--dhcp-option=option:domain-search,{domain}",
    ]  # fmt: skip
    own += [f"--local=/{zone}/" for zone in reverse_zones(subnet)]
    own += [f"--server={resolver}" for resolver in naming.resolvers]
    return [*_FIXED, *own]


def hosts(network: Served, domain: str) -> str:
    """Every name of the network as hosts(5), in the domain and alone. A name is one guest's, and of the node's before others'."""
    taken: set[str] = set()
    lines = []
    members = [(guest.order.address, guest.names) for guest in sorted(network.guests, key=lambda it: it.order.address)]
    members += [(remote.address, remote.names) for remote in network.remotes]
    for address, names in members:
        own = [name for name in dict.fromkeys(names) if name not in taken]
        taken.update(own)
        if own:
            lines.append(f"{address} {' '.join(f'{name}.{domain} {name}' for name in own)}\n")
    return "".join(lines)


def dhcp_hosts(network: Served) -> str:
    """What is leased to the guests of the node, by MAC address; `id:*`: whatever the client calls itself."""
    guests = sorted(network.guests, key=lambda it: it.order.address)
    return "".join(f"{one.order.mac},id:*,{one.order.address},{one.names[0]}\n" for one in guests)


def _left(before: str | None, now: str) -> bool:
    """Whether a guest of the file before is in no line now."""
    return not set((before or "").splitlines()) <= set(now.splitlines())


def reverse_zones(subnet: IPv4Network) -> list[str]:
    """The zones of in-addr.arpa that have the subnet's addresses, of whole octets (RFC 1035 §3.5): none of them is forwarded."""
    octets = 3 if subnet.prefixlen > 16 else 2
    if subnet.prefixlen > 8 * octets:
        subnet = subnet.supernet(new_prefix=8 * octets)
    return [
        ".".join(reversed(str(one.network_address).split(".")[:octets])) + ".in-addr.arpa"
        for one in subnet.subnets(new_prefix=8 * octets)
    ]


def _start(arguments: list[str]) -> None:
    """Returns once the process listens, in the background."""
    try:
        account = pwd.getpwnam(ACCOUNT)
    except KeyError as error:
        raise NetworkError(f"the account {ACCOUNT} is missing; it comes with Debian's package dnsmasq-base") from error
    user, group = str(account.pw_uid), str(account.pw_gid)
    as_account = ("--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs")
    call(
        "setpriv", *as_account, "--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES, PROGRAM, *arguments
    )  # fmt: skip


def _end(pids: list[int]) -> None:
    """Ask, then kill: afterwards none of the processes is there. Raises OSError."""
    for asked, seconds in ((signal.SIGTERM, END_SECONDS_MAX), (signal.SIGKILL, END_SECONDS_MAX)):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, asked)
        deadline = time.monotonic() + seconds
        while pids := [pid for pid in pids if _arguments(str(pid))]:
            if time.monotonic() >= deadline:
                break
            time.sleep(LOOK_SECONDS)
    if pids:
        raise NetworkError(f"{PROGRAM} does not end: processes {', '.join(map(str, pids))}")


def _arguments(pid: str) -> list[str]:
    """Empty for a process that has ended."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return []


def _is_of_this_namespace(pid: str) -> bool:
    """False where the agent may not know: it is then another user's than the agent's, which is not root."""
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    except OSError:
        return False


def _vni_of(name: str) -> int | None:
    vni, _, number = name.partition("-")
    return int(vni) if vni.isdecimal() and number.isdecimal() else None


def _read(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
