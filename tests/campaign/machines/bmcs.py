"""`python -m tests.campaign.machines.bmcs DIRECTORY`: the BMCs of the rack, whose state outlives this process.

A BMC fails while `faults.json` of its machine names a switch (`SWITCHES`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from berth.process.health_server import serve_health
from node_agent.redfish.clock import Clock, SystemClock
from tests.campaign.machines.place import FIRST_PASSWORD, USER, Place, places_of
from tests.support.bmc.faults import Fault, Rule
from tests.support.bmc.machine import SYSTEM, Options, StubMachine
from tests.support.bmc.server import serving
from tests.support.bmc.service import Reply, Request, StubService
from tests.support.waiting import pause

TICK_SECONDS = 0.05
LATE_SECONDS = 1.0
"""How long a BMC holds a command: less than the agents wait for (tests/testbuild/hurrying.py)."""
ATTEMPT = "x-berth-attempt"
"""Which attempt of the site has sent a request: lease fence, task fence, and when."""

_COMMANDS = "POST .*/Actions/"
_KEPT = ("power", "override", "image", "passwords", "versions", "firmware")


def _rule(match: str, fault: Fault, seconds: float = 0.0) -> Rule:
    return Rule(match, fault, sys.maxsize, seconds)


SWITCHES: Mapping[str, Callable[[], list[Rule]]] = {
    "bmc_silent": lambda: [_rule(_COMMANDS, Fault.NO_ANSWER_WITH_EFFECT), _rule(".", Fault.NO_ANSWER)],
    "bmc_busy": lambda: [_rule(".", Fault.BUSY)],
    "bmc_error": lambda: [_rule(_COMMANDS, Fault.ERROR_WITH_EFFECT), _rule(".", Fault.ERROR)],
    "bmc_refuses_password": lambda: [
        _rule("PATCH .*/Accounts/", Fault.DELAYED, LATE_SECONDS), _rule("/v1/.", Fault.UNAUTHORISED),
    ],
    "bmc_lies": lambda: [_rule("(POST .*/Actions/|PATCH )", Fault.LIE)],
    "bmc_delays": lambda: [_rule(_COMMANDS, Fault.DELAYED, LATE_SECONDS)],
    "bmc_queues": lambda: [_rule(_COMMANDS, Fault.QUEUED, LATE_SECONDS)],
}  # fmt: skip
"""What a BMC does while it is switched so, by the rules of its script. The other switches are in `KeptService`."""


@dataclass
class Kept:
    """What of a machine is on the disk."""

    place: Place
    machine: StubMachine
    saved: dict[str, Any]
    boot: int = 0

    @classmethod
    def load(cls, place: Place, clock: Clock) -> Kept:
        """As it was left; at first off, with the first password."""
        options = Options(lockout_after=sys.maxsize)
        machine = StubMachine(clock, options, passwords={USER: FIRST_PASSWORD})
        found = place.read("bmc")
        for name in _KEPT:
            if name in found:
                setattr(machine, name, found[name])
        # What was stored must not change with the machine, whose members are those of `found`.
        return cls(place, machine, place.read("bmc"), found.get("boot", 0))

    def save(self) -> None:
        """Store what has changed, and note it as evidence."""
        machine, before = self.machine, self.saved
        started = len(machine.boots)
        self.boot += started
        target = machine.boots[-1] if started else before.get("target", "None")
        machine.boots.clear()
        found = {name: getattr(machine, name) for name in _KEPT} | {"boot": self.boot, "target": target}
        if found == before:
            return
        self.place.write("bmc", found)
        self.saved = json.loads(json.dumps(found))
        if (found["power"], self.boot) != (before.get("power", "Off"), before.get("boot", 0)):
            self.place.note("power", state=machine.power, boot=self.boot, target=target, image=machine.image)
        if found["image"] != before.get("image"):
            self.place.note("image", image=machine.image)
        if found["passwords"] != before.get("passwords", found["passwords"]):
            self.place.note("password", password=machine.passwords[USER])


class KeptService(StubService):
    """The BMC of a machine whose state is stored before each answer."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self.kept = Kept.load(place, clock)
        super().__init__(self.kept.machine)
        self.switch = ""
        self._reads = 0

    def handle(self, request: Request) -> Reply:
        """Answer one request, and store what it has changed."""
        accepted, power = len(self.accepted), self.machine.power
        is_read = (request.method, request.path) == ("GET", SYSTEM)
        self._reads += is_read
        is_flipped = self.switch == "power_flaps" and is_read and self._reads % 2
        if is_flipped:
            self.machine.power = "Off" if power == "On" else "On"
        try:
            reply = super().handle(request)
        finally:
            if is_flipped:
                self.machine.power = power
        self.kept.save()
        for line, _ in self.accepted[accepted:]:
            if "/Sessions" not in line:
                self.kept.place.note("command", line=line, status=reply.status, attempt=request.headers.get(ATTEMPT))
        return reply

    def tick(self) -> None:
        """Carry out what is due, end a machine whose system has powered it off, and follow the faults."""
        self.machine.advance()
        place, ended = self.kept.place, self.kept.place.read("ended").get("boot")
        if ended is not None:
            if (self.machine.power, self.kept.boot) == ("On", ended):
                self.machine.power = "Off"
            place.remove("ended")
        switch = str(place.read("faults").get("switch", ""))
        if switch != self.switch:
            self.switch = switch
            self.script.rules = SWITCHES[switch]() if switch in SWITCHES else []
            self.machine.options.loses_override = switch == "boot_forgotten"
            place.note("switch", switch=switch)
        if switch == "medium_ejected" and self.machine.image is not None:
            self.machine.set_image(None)
        self.kept.save()

    @property
    def certificate(self) -> int:
        """The number of the certificate that it has now."""
        return 2 if self.switch == "certificate_changed" else 1


def _context(place: Place, number: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place.certificate(number))
    return context


async def serve(place: Place) -> None:
    """Serve one BMC, anew when its certificate has changed."""
    service = KeptService(place, SystemClock())
    while True:
        number = service.certificate
        async with serving(service, _context(place, number), place.port):
            while service.certificate == number:
                service.tick()
                await pause(TICK_SECONDS)


async def main(directory: Path) -> None:
    """Serve all until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    port = int(os.environ["BERTH_METRICS_PORT"])
    with serve_health("127.0.0.1", port, CollectorRegistry(), lambda: {"ok": True}):
        serving_all = [asyncio.create_task(serve(place)) for place in places_of(directory)]
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([*serving_all, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in serving_all:
            if task.done():
                task.result()
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*serving_all)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
