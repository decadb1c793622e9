"""A machine made of files, and the life of its deploy system on it."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from node_agent.deploy_system.loop import DeploySettings, DeploySystem, Ending
from node_agent.deploy_system.problems import DeployEnded
from node_agent.deploy_system.process import STATUS
from node_agent.wire.deploy_medium import DeployMedium
from tests.deploy_system.machine_process import settings_of
from tests.deploy_system.stage import MAC, OTHER_MAC, SMBIOS, Stage


class Started:
    """A machine made of files, and its deploy system as a process."""

    def __init__(self, stage: Stage, directory: Path, medium: DeployMedium | bytes) -> None:
        self.stage, self.directory = stage, directory
        (directory / "sys/class/dmi/id").mkdir(parents=True)
        (directory / "sys/class/dmi/id/product_uuid").write_text(f"{str(SMBIOS).upper()}\n")
        for name, mac in (("eth0", MAC), ("eth1", OTHER_MAC)):
            (directory / f"sys/class/net/{name}/device").mkdir(parents=True)
            (directory / f"sys/class/net/{name}/address").write_text(f"{mac}\n")
        (directory / "sys/class/net/lo").mkdir()
        (directory / "sys/class/net/lo/address").write_text("00:00:00:00:00:00\n")
        (directory / "medium.json").write_bytes(medium if isinstance(medium, bytes) else medium.written())
        self.root_keys = stage.files.root_keys
        self.process: subprocess.Popen[str] | None = None
        self.thread: Future[tuple[int, str]] | None = None
        self.power: list[Callable[[], object]] = []

    def start(self, *, as_process: bool = False) -> None:
        """Start the deploy system, in a thread, or as a process, which takes seconds."""
        arguments = [self.directory / "medium.json", self.root_keys, self.directory]
        if as_process:
            command = [sys.executable, "-m", "tests.deploy_system.machine_process", *map(str, arguments)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return
        threads = ThreadPoolExecutor(1)
        self.thread = threads.submit(lived, settings_of(*arguments), self.power)
        threads.shutdown(wait=False)

    def ended(self) -> tuple[int, str]:
        """Its exit status, and what is on the console."""
        if self.thread is not None:
            return self.thread.result(timeout=60)
        assert self.process is not None
        console, _ = self.process.communicate(timeout=60)
        return self.process.returncode, console

    @property
    def performed(self) -> list[str]:
        """What was performed."""
        file = self.directory / "performed"
        return file.read_text().split() if file.exists() else []

    def kill(self) -> None:
        """SIGKILL of its process, as of a power cut; in a thread, what runs is cancelled."""
        for cut in self.power:
            cut()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def lived(settings: DeploySettings, power: list[Callable[[], object]]) -> tuple[int, str]:
    """What `run` of the process makes of one life: status and last sentence. While it runs, `power` has what ends it."""

    async def live() -> Ending:
        task = asyncio.current_task()
        assert task is not None
        power.append(functools.partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
        try:
            return await DeploySystem(settings).run()
        finally:
            power.clear()

    try:
        return STATUS[asyncio.run(live())], ""
    except DeployEnded as problem:
        return 1, str(problem)


def machine_of(stage: Stage, machines: list[Started], tmp_path: Path, medium: DeployMedium | bytes) -> Started:
    """A machine with this medium."""
    made = Started(stage, tmp_path, medium)
    machines.append(made)
    return made
