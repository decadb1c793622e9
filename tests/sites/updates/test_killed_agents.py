"""Processes of agents are killed in an update of firmware: the next one ends it, and the BMC is sent it once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from node_agent.site.crash_points import CrashPoint
from tests.media.media_files import common_medium
from tests.sites.stage import Machine, Site, Stage
from tests.sites.updates.running import IMAGE, SHA256, ImageServer
from tests.support.bmc.machine import Options
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

COMPLETED = (
    CrashPoint.FIRMWARE_AFTER_FETCHED,
    CrashPoint.FIRMWARE_AFTER_SENT,
    CrashPoint.FIRMWARE_AFTER_TASK,
    CrashPoint.FIRMWARE_AFTER_ENDED,
    CrashPoint.FIRMWARE_AFTER_RESTARTED,
    CrashPoint.REPORT_BEFORE_SENT,
)
QUICK = (CrashPoint.FIRMWARE_AFTER_SENT,)


@pytest.fixture
def media(stage: Stage, site: Site, tmp_path: Path) -> Iterator[Site]:
    """A site whose agents serve media."""
    file = tmp_path / "deploy.iso"
    common_medium(file)
    stage.medium = file
    yield site
    stage.medium = None


@contextlib.contextmanager
def image_server(stage: Stage) -> Iterator[ImageServer]:
    """A server that has the image, until the block ends."""
    ready: Future[ImageServer] = Future()
    ended = asyncio.Event()

    async def serve() -> None:
        async with ImageServer().serving() as server:
            ready.set_result(server)
            await ended.wait()

    serving = stage.background.start(serve())
    try:
        yield ready.result(WAIT_SECONDS_MAX)
    finally:
        stage.background.loop.call_soon_threadsafe(ended.set)
        serving.result(WAIT_SECONDS_MAX)


def committed(stage: Stage, machine: Machine, images: ImageServer) -> str:
    """A window that has begun and updates the machine; its path."""
    now = datetime.now(UTC)
    firmware = {
        "image_url": f"http://127.0.0.1:{images.port}/bmc.bin", "sha256": SHA256, "targets": ["BMC"], "version": "2.00",
    }  # fmt: skip
    body = {
        "resources": [f"node:{machine.node_id}"], "starts_at": now.isoformat(), "reason": "new firmware",
        "ends_at": (now + timedelta(hours=2)).isoformat(),
        "task": {"kind": "firmware", "firmware": firmware, "timeout_seconds": 1_200},
    }  # fmt: skip
    made = stage.admin.make("/admin/maintenance", body)
    return f"/admin/maintenance/{made['window_id']}"


def task_of(stage: Stage, window: str) -> dict[str, Any]:
    """What the API says of the task of the window on its node."""
    found: dict[str, Any] = stage.admin.get(window)["tasks"][0]
    return found


def sent(machine: Machine) -> int:
    return sum(line.endswith("SimpleUpdate") for line in machine.service.requests)


@pytest.mark.parametrize(
    "point", [point if point in QUICK else pytest.param(point, marks=pytest.mark.full) for point in COMPLETED]
)
def test_a_standby_completes_an_update_that_a_killed_agent_began(stage: Stage, media: Site, point: CrashPoint) -> None:
    first = media.agent("first", crash_at=f"{point}:1")
    media.wait_for_holder("first")
    media.agent("second")
    options = Options(tasks=True, task_seconds=3, reset_types=("On", "ForceOff"))
    if point is CrashPoint.FIRMWARE_AFTER_RESTARTED:
        options.update_applies = "host"
    with image_server(stage) as images, stage.machine(options) as machine:
        read: list[bytes] = []
        if point in (CrashPoint.FIRMWARE_AFTER_ENDED, CrashPoint.REPORT_BEFORE_SENT):
            options.update_effect = lambda url: read.append(httpx.get(url, timeout=10).content)
        machine.service.machine.power = "On"
        media.put_bmc(machine)
        window = committed(stage, machine, images)
        wait_for(first.died, "the first agent kills itself", 90)
        wait_for(lambda: task_of(stage, window)["ended_at"] is not None, "the task ends", 150)
        found = task_of(stage, window)
        assert (found["state"], found["failure"]) == ("completed", None)
        assert found["evidence"].startswith("BMC: 1.00 before, 2.00 after")
        assert sent(machine) == 1
        if read:
            assert read == [IMAGE], "the BMC reads from the agent what was compared"
            path = machine.service.machine.images[0]
            with pytest.raises(httpx.HTTPError):
                httpx.get(path, timeout=5).raise_for_status()


@pytest.mark.full
def test_a_standby_sends_nothing_that_a_killed_agent_was_about_to_send(stage: Stage, media: Site) -> None:
    """Until its deadline it reads the versions. What becomes of it then: test_takeovers.py."""
    first = media.agent("first", crash_at=f"{CrashPoint.FIRMWARE_BEFORE_SENT}:1")
    media.wait_for_holder("first")
    media.agent("second")
    with image_server(stage) as images, stage.machine(Options(tasks=True)) as machine:
        media.put_bmc(machine)
        window = committed(stage, machine, images)
        wait_for(first.died, "the first agent kills itself", 60)
        before = len(machine.service.requests)
        wait_for(
            lambda: sum(line.endswith("FirmwareInventory") for line in machine.service.requests[before:]) > 2,
            "the second agent reads the versions",
            60,
        )
        assert (sent(machine), task_of(stage, window)["state"]) == (0, "running")
        assert stage.admin.get(window)["state"] == "active"
