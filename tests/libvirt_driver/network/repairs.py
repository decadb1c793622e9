"""What becomes of networks that are changed, left behind or half made: printed as JSON. `killed` ends itself at a program."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from typing import Any
from uuid import UUID

from node_agent.drivers.libvirt.network import links as links_module
from node_agent.drivers.libvirt.network import programs
from node_agent.drivers.libvirt.network.links import links
from node_agent.drivers.libvirt.network.networks import TenantNetworks
from node_agent.drivers.libvirt.network.rules import Guest
from node_agent.problems import CannotStart
from tests.libvirt_driver.network.stage import A1, A2, B1, guest, policy, sh


def state() -> str:
    """Rules, interfaces and addresses, without counters and numbers of the kernel's."""
    rules = sh("nft -s list ruleset")
    shown = sh(
        "ip -o link | grep -v ' lo:' | sed 's/^[0-9]*: //' | grep -o '^[a-z0-9]*\\|master [a-z0-9]*\\|alias .*' || true"
    )
    addresses = sh("ip -4 -o addr | awk '$2 ~ /^berth/ {print $2, $4}'")
    return "\n".join(
        ["".join(sorted(rules.splitlines(True))), *sorted(shown.splitlines()), *sorted(addresses.splitlines())]
    )


def networks_of(guests: list[Guest]) -> TenantNetworks:
    """The networks of a node with these guests."""
    return TenantNetworks(policy(), lambda: guests)


async def repaired(guests: list[Guest]) -> str:
    """The state after an agent with these guests has started."""
    made = networks_of(guests)
    await made.start()
    made.close()
    return state()


async def changes() -> dict[str, Any]:
    """What is restored, removed and refused."""
    found: dict[str, Any] = {}
    guests = [A1, A2, B1]
    made = networks_of(guests)
    await made.start()
    whole = state()
    found["again"] = [await made.tend(), state() == whole]
    await made.bring_in(A1)
    found["brought in twice"] = state() == whole
    for name, damage in {
        "flushed rules": "nft flush ruleset",
        "one rule gone": "nft flush chain bridge berth prerouting",
        "one element gone": "nft flush set inet berth closed",
        "a tap gone": f"ip link delete {A1.tap}",
        "a bridge gone": f"ip link delete {B1.bridge}",
        "a tap out of its bridge": f"ip link set {A1.tap} nomaster",
        "a tap in another bridge": f"ip link set {A1.tap} master {B1.bridge}",
        "another address": f"ip addr add 10.66.9.9/24 dev {A1.bridge}",
        "a stray tap": f"ip tuntap add dev bertht0 mode tap; ip link set bertht0 master {A1.bridge}",
        "a stray bridge": "ip link add berthb99 type bridge",
    }.items():
        sh(damage)
        changed = state() != whole
        found[name] = [changed, await made.tend(), state() == whole]
    sh("ip link add uplink0 type bridge; nft add table inet foreign")
    found["left alone"] = [await made.tend(), "uplink0" in state(), "foreign" in state()]
    sh("ip link delete uplink0; nft delete table inet foreign")
    try:
        await networks_of([]).start()
    except CannotStart as refused:
        found["second agent"] = str(refused)
    sh(f"ip link set {A1.tap} alias {A2.allocation_id}")
    found["another's tap"] = []
    try:
        await made.bring_in(A1)
    except OSError as refused:
        found["another's tap"] = [str(refused), await made.take_out(A1.allocation_id), A1.tap in links()]
    sh(f"ip link set {A1.tap} alias {A1.allocation_id}")
    await made.bring_in(A1)
    found["unknown"] = await made.take_out(UUID(int=77))
    for one in list(guests):
        found[f"out {one.allocation_id.int}"] = [await made.take_out(one.allocation_id), one.tap in links()]
        found[f"again {one.allocation_id.int}"] = await made.take_out(one.allocation_id)
        guests.remove(one)
    found["left"] = sorted(links())
    # An element that no record explains is in the way of a new guest with the same port.
    await made.bring_in(A1)
    other = guest(1, 2, 12)
    guests.append(other)
    sh(f"ip link delete {A1.tap}; ip link delete {A1.bridge}")
    await made.bring_in(other)
    found["reused port"] = state() == await _fresh(made, guests)
    return found


async def _fresh(made: TenantNetworks, guests: list[Guest]) -> str:
    made.close()
    return await repaired(guests)


def kill_at(number: int) -> None:
    """End this process at the call of a program with this number, before or after it ran."""
    calls = itertools.count()
    real = programs.call

    def call(*arguments: str, **options: Any) -> str:
        if arguments[:2] in (("ip", "-json"), ("nft", "-s"), ("nft", "-j")):
            return real(*arguments, **options)
        for moment in ("before", "after"):
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            if moment == "before":
                said = real(*arguments, **options)
        return said

    programs.call = call
    links_module.call = call  # type: ignore[attr-defined]


async def play(step: str) -> None:
    """Bring A2 in beside A1, or take A1 out of its network, as a process that may be killed."""
    guests = [A1, A2] if step == "in" else [A1]
    made = networks_of(guests)
    made._left = programs.listed_rules(("bridge berth", "inet berth"))
    if step == "in":
        await made.bring_in(A2)
    else:
        await made.take_out(A1.allocation_id)


async def kills(step: str) -> list[bool]:
    """For each point of death: whether the next agent makes the same as one that was never interrupted."""
    cases: dict[str, tuple[list[Guest], list[Guest]]] = {"in": ([A1], [A1, A2]), "out": ([A1], [])}
    before, after = cases[step]
    wanted = await repaired(after)
    outcomes: list[bool] = []
    while True:
        await repaired(before)
        if not await asyncio.to_thread(_dies, step, len(outcomes)):
            return outcomes
        outcomes.append(await _continued(step, before, after) == wanted)


async def _continued(step: str, before: list[Guest], after: list[Guest]) -> str:
    if step == "in":
        return await repaired(after)
    guests = list(before)
    made = networks_of(guests)
    await made.start()  # the record is still there: the release runs again
    await made.take_out(A1.allocation_id)
    made.close()
    return state()


def _dies(step: str, number: int) -> bool:
    done = subprocess.run([sys.executable, "-m", __spec__.name, "killed", step, str(number)], check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.returncode
    return done.returncode != 0


if __name__ == "__main__":
    if sys.argv[1] == "killed":
        kill_at(int(sys.argv[3]))
        asyncio.run(play(sys.argv[2]))
    else:
        result = asyncio.run(changes() if sys.argv[1] == "changes" else kills(sys.argv[2]))
        print(json.dumps(result))  # noqa: T201 - the result
