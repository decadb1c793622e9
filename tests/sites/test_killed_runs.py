"""Agents and the worker are killed while a run starts and ends a deploy system: the machine ends off, and nothing is served."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from node_agent.media.placeholder import CONFIGURATION_BYTES
from node_agent.site.crash_points import CrashPoint
from node_agent.wire.deploy_medium import DeployMedium, read_medium
from tests.deploy_system.stage import MAC, SMBIOS
from tests.deploy_system.stage import Machine as Booted
from tests.media.media_files import AT, common_medium
from tests.sites.stage import Agent, Machine, Site, Stage
from tests.support.waiting import wait_for

PAIRS = [
    (CrashPoint.START_AFTER_PUBLISHED, CrashPoint.END_AFTER_OFF),
    (CrashPoint.START_AFTER_INSERTED, CrashPoint.END_AFTER_EJECTED),
    (CrashPoint.START_AFTER_BOOT_ONCE, CrashPoint.END_AFTER_DISK),
    (CrashPoint.START_AFTER_ON, CrashPoint.END_AFTER_OFF),
]
"""Where the first agent dies in a start, and the second one in an end."""
NETWORK = {"mac": MAC, "address": "192.0.2.7/24"}


@pytest.fixture
def media(stage: Stage, site: Site, tmp_path: Path) -> Iterator[Site]:
    """A site whose agents serve a medium."""
    file = tmp_path / "deploy.iso"
    common_medium(file)
    stage.medium = file
    yield site
    stage.medium = None


class Run:
    """A run on a machine, whose deploy system is played here."""

    def __init__(self, site: Site, machine: Machine) -> None:
        self.site, self.stage, self.machine = site, site.stage, machine
        site.put_bmc(machine)
        self.stage.fleet.connection.execute("update nodes set state = 'cordoned' where id = %s", (machine.node_id,))
        self.path = f"/admin/nodes/{machine.node_id}/deploy-system/run"
        self.stage.admin.make(self.path, {"network": NETWORK, "smbios_uuid": str(SMBIOS)})

    def is_at(self, condition: str) -> bool:
        statement = f"select count(*) from deploy_runs where node_id = %s and {condition}"
        return self.stage.fleet.one(statement, self.machine.node_id) == 1

    def read_from(self, agent: Agent) -> DeployMedium:
        """What the machine reads, from the agent that serves its medium now."""
        url = f"{agent.media_url}{self.medium_path}"
        part = {"range": f"bytes={AT}-{AT + CONFIGURATION_BYTES - 1}"}
        return read_medium(httpx.get(url, headers=part).raise_for_status().content)

    def boot(self, agent: Agent) -> None:
        """The machine boots, inspects, and switches itself off."""
        wait_for(lambda: self.is_at("step = 'work'"), "the deploy system is started", 60)
        assert self.machine.service.machine.image is not None
        self.medium_path = urlsplit(self.machine.service.machine.image).path
        endpoints, ca = self.stage.endpoints, str(self.stage.authority.ca_certificate)
        booted = Booted(self.read_from(agent), endpoints.api_url, endpoints.node_api_url, ca)
        system = booted.enrolled(self.stage.directory)
        assert system.hello().status_code == 200
        wait_for(lambda: bool(system.wait().json()["tasks"]), "its task is signed", 30)
        assert system.report(system.task()).json()["applied"]
        self.machine.service.machine.power = "Off"

    def ended(self) -> dict[str, Any]:
        """The run once it has ended: the machine is off without a medium, and no agent serves it."""
        wait_for(lambda: self.is_at("ended_at is not null"), "the run ends", 90)
        found = self.machine.service.machine
        assert (found.power, found.image) == ("Off", None)
        assert found.override["enabled"] == "Disabled" or found.override["target"] != "Cd"
        for agent in self.site.agents:
            with contextlib.suppress(httpx.ConnectError):
                assert httpx.head(f"{agent.media_url}{self.medium_path}").status_code == 404
        shown: dict[str, Any] = self.stage.admin.get(self.path)
        return shown


# Real agent processes take ten seconds a pair. In `make test` test_boots.py ends an agent before each request of start and end.
@pytest.mark.full
@pytest.mark.parametrize(
    ("in_start", "in_end"),
    PAIRS,
)
def test_a_run_goes_on_when_agents_are_killed_in_start_and_end(
    stage: Stage, media: Site, in_start: CrashPoint, in_end: CrashPoint
) -> None:
    first = media.agent("first", crash_at=f"{in_start}:1")
    media.wait_for_holder("first")
    second = media.agent("second", crash_at=f"{in_end}:1")
    with stage.machine() as machine:
        run = Run(media, machine)
        wait_for(first.died, "the first agent kills itself", 60)
        run.boot(second)
        wait_for(second.died, "the second agent kills itself", 60)
        first.start()
        shown = run.ended()
        assert (shown["outcome"], shown["failure"]) == ("completed", None)
        assert (machine.service.machine.boots, machine.service.machine.effects.count("On")) == (["Cd"], 1)
