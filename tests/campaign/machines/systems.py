"""`python -m tests.campaign.machines.systems DIRECTORY`: what runs on the machines of the rack while they are on.

A machine that starts from its medium runs the real agent of a deploy system, whose work on the disk is played
(tests/campaign/machines/work.py). One that starts from its disk runs what was deployed: an SSH server with the host key of its
deployment, which writes its tenant's marker. What runs ends when the machine is off. A deploy system at
work dies while there is `armed.json`; the machine then hangs, as after the death of its kernel.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh
import httpx
from prometheus_client import CollectorRegistry

from berth.process.health_server import serve_health
from berth.process.logs import configure_logging
from node_agent.deploy_system.effects.contract import Host, ToolRun
from node_agent.deploy_system.loop import DeploySettings, DeploySystem, Ending
from node_agent.deploy_system.problems import DeployEnded
from node_agent.media.placeholder import CONFIGURATION_BYTES
from tests.campaign.machines.place import Place, places_of
from tests.campaign.machines.work import Work, refuse_when_off
from tests.media.media_files import AT
from tests.support.waiting import pause

TICK_SECONDS = 0.05
FETCH_SECONDS_MAX = 5.0


class System:
    """What runs on one machine."""

    def __init__(self, place: Place, ssh_port: int, root_keys: Path) -> None:
        self.place, self._ssh_port, self._root_keys = place, ssh_port, root_keys
        self._boot: int | None = None
        self._running: asyncio.Task[None] | None = None
        self._work: Work | None = None

    async def live(self) -> None:
        """Follow the machine's power."""
        while True:
            bmc = self.place.read("bmc")
            boot = bmc.get("boot", 0) if bmc.get("power") == "On" else None
            if boot != self._boot:
                await self._end()
                self._boot = boot
                if boot is not None:
                    self._running = asyncio.create_task(self._start(boot, bmc))
            if self._is_to_die():
                await self._end()
                self.place.note("killed", boot=boot)
            await pause(TICK_SECONDS)

    def _is_to_die(self) -> bool:
        """Whether a fault waits for the deploy system that works here; it is taken once."""
        if self._running is None or self._work is None or not self._work.has_begun or not self.place.read("armed"):
            return False
        self.place.remove("armed")
        return True

    async def _end(self) -> None:
        self._work = None
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._running
            self._running = None

    async def _start(self, boot: int, bmc: dict[str, Any]) -> None:
        medium = await self._medium(bmc["image"]) if bmc["target"] == "Cd" and bmc["image"] else None
        if medium is not None:
            await self._deploy_system(boot, medium)
        else:
            await self._installed(boot)

    async def _medium(self, image: str) -> bytes | None:
        """The configuration on the medium; None if it cannot be read, so that the firmware goes on to the disk."""
        asked = {"Range": f"bytes={AT}-{AT + CONFIGURATION_BYTES - 1}"}
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=FETCH_SECONDS_MAX) as http:
                answer = await http.get(image, headers=asked)
        except httpx.HTTPError:
            return None
        return answer.content if answer.status_code == httpx.codes.PARTIAL_CONTENT else None

    async def _deploy_system(self, boot: int, medium: bytes) -> None:
        directory = self.place.directory / "host"
        self._make_host(directory)
        (directory / "medium.json").write_bytes(medium)
        self._work = work = Work(self.place, boot)
        host = Host(run=lambda command, timeout: ToolRun(127, ""), sys=directory / "sys", scratch=directory)
        settings = DeploySettings(
            medium=directory / "medium.json", root_keys_file=self._root_keys, host=host, bring_up=lambda host, network: None,
            work=lambda ca_pem: work.by_type, version="campaign", give_up_seconds=10.0, wait_seconds=2.0,
        )  # fmt: skip
        self.place.note("deploy_system", boot=boot)
        try:
            ending = await DeploySystem(settings).run()
        except DeployEnded as ended:
            self.place.note("deploy_ended", boot=boot, why=str(ended)[:300])
            ending = Ending.POWER_OFF
        if ending is Ending.HAND_OVER:
            await self._serve_ssh(work.rescue_key)
        else:
            self.place.write("ended", {"boot": boot})

    def _make_host(self, directory: Path) -> None:
        port = directory / "sys/class/net/eth0"
        (port / "device").mkdir(parents=True, exist_ok=True)
        (port / "address").write_text(f"{self.place.mac}\n")
        firmware = directory / "sys/class/dmi/id"
        firmware.mkdir(parents=True, exist_ok=True)
        (firmware / "product_uuid").write_text(f"{self.place.smbios}\n")

    async def _installed(self, boot: int) -> None:
        disk = self.place.read("disk")
        owner = disk.get("allocation")
        if owner is None:
            self.place.note("nothing_to_boot", boot=boot)
            return
        refuse_when_off(self.place, boot)
        self.place.note("tenant", boot=boot, allocation=owner, markers=disk["markers"])
        if owner not in disk["markers"]:
            self.place.write("disk", disk | {"markers": [*disk["markers"], owner]})
        await self._serve_ssh(disk["host_key"])

    async def _serve_ssh(self, private: str) -> None:
        key = asyncssh.import_private_key(private)
        server = await asyncssh.listen(self.place.address, self._ssh_port, server_host_keys=[key])
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            await server.wait_closed()


async def main(directory: Path) -> None:
    """Run all machines until SIGTERM."""
    configure_logging()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    ssh_port, root_keys = int(os.environ["BERTH_MACHINES_SSH_PORT"]), Path(os.environ["BERTH_ROOT_KEYS_FILE"])
    port = int(os.environ["BERTH_METRICS_PORT"])
    with serve_health("127.0.0.1", port, CollectorRegistry(), lambda: {"ok": True}):
        lives = [
            asyncio.create_task(System(place, ssh_port, root_keys).live()) for place in places_of(directory)
        ]  # fmt: skip
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([*lives, stopped], return_when=asyncio.FIRST_COMPLETED)
        for life in lives:
            if life.done():
                life.result()
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
