"""Drivers that carry nothing out on a real GPU are refused unless the operator allows them, and never join real nodes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from node_agent.protocol import Heartbeat
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.nodes.refusals import DriverRefused
from tests.placement.fleet import Fleet, working

DEPLOY = Path(__file__).parents[2] / "deploy"


def beat(fleet: Fleet, node: UUID, driver: str, *, sandbox_allowed: bool) -> str:
    """What becomes of a heartbeat: `online`, or the code of its refusal."""

    async def scene() -> str:
        async with working(fleet.url) as (context, _):
            heartbeat = Heartbeat(agent_version="1", driver=driver, allocations=[])
            try:
                await record_heartbeat(context, node, heartbeat, sandbox_allowed=sandbox_allowed)
            except DriverRefused as refusal:
                return refusal.code
        return "online"

    return asyncio.run(scene())


def nodes_of(fleet: Fleet) -> list[UUID]:
    return [row[0] for row in fleet.connection.execute("select id from nodes order by name")]


def shown(fleet: Fleet, node: UUID) -> object:
    """Driver and whether it is online, as stored."""
    return fleet.one("select array[driver, online::text] from nodes where id = %s", node)


@pytest.mark.parametrize("driver", ["sandbox", "noop"])
def test_a_node_without_real_gpus_does_not_come_online(database_url: str, driver: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    (node,) = nodes_of(fleet)
    assert beat(fleet, node, driver, sandbox_allowed=True) == "online"
    assert shown(fleet, node) == [driver, "true"]
    assert beat(fleet, node, driver, sandbox_allowed=False) == "driver_refused"
    assert shown(fleet, node) == [driver, "false"]
    events = fleet.connection.execute("select event_type from outbox order by id").fetchall()
    assert events == [("node.offline",)], "nodes of the fleet are online to begin with"


def test_a_pool_of_real_nodes_refuses_every_other_driver(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=3)
    first, second, third = nodes_of(fleet)
    assert beat(fleet, first, "libvirt", sandbox_allowed=True) == "online"
    assert fleet.one("select driver from pools where shape = 'gpu_slice'") == "libvirt"
    assert beat(fleet, second, "libvirt", sandbox_allowed=False) == "online"
    for driver in ("sandbox", "noop", "redfish"):
        assert beat(fleet, third, driver, sandbox_allowed=True) == "driver_refused"
        assert shown(fleet, third) == [driver, "false"]
    assert fleet.one("select driver from pools where shape = 'gpu_slice'") == "libvirt"
    assert fleet.one("select driver from pools where shape = 'baremetal'") is None


def test_no_agent_says_that_its_node_has_none(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    (node,) = nodes_of(fleet)
    assert beat(fleet, node, "redfish", sandbox_allowed=True) == "driver_refused"
    assert shown(fleet, node) == ["redfish", "false"]
    assert fleet.one("select driver from pools where shape = 'gpu_slice'") is None


@pytest.mark.full
@pytest.mark.parametrize("driver", ["sandbox", "noop"])
def test_an_agent_does_not_start_with_it(tmp_path: Path, driver: str) -> None:
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "BERTH_AGENT_DRIVER": driver,
        "BERTH_API_URL": "http://127.0.0.1:1", "BERTH_AGENT_STATE_DIR": str(tmp_path), "BERTH_AGENT_STARTUP_SECONDS": "1",
        "BERTH_ROOT_KEYS_FILE": str(tmp_path / "root-public.pem"),
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "node_agent"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert "BERTH_SANDBOX_ALLOWED" in ended.stderr


def test_no_file_of_a_deployment_allows_it() -> None:
    naming = [
        path.name for path in DEPLOY.rglob("*") if path.suffix in (".env", ".yaml", ".yml", ".service", ".sh", "")
        and path.is_file() and "SANDBOX_ALLOWED" in path.read_text()
    ]  # fmt: skip
    assert naming == []
    assert len(list(DEPLOY.rglob("*.env"))) > 0
