"""`berth up --ha --read-standbys`: standbys serve reads before and after the primary dies, and none is staler than demanded."""

from __future__ import annotations

import uuid
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from berth.cli.endings import USAGE
from berth.cli.main import app
from tests.high_availability.stacks import Load, Watched, kill_postgres, watched_stack
from tests.metrics_ports import get
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant

BY_STANDBY = 'berth_api_replicated_reads_total{source="standby"}'


def read_newest(running: Watched, tenant: Tenant) -> int | None:
    """The version of a list that demands the newest one, checked; None while the API refuses."""
    headers = {"authorization": f"Bearer {tenant.api_key}"}
    with httpx.Client(base_url=running.stack.endpoints.api_url, headers=headers, timeout=60) as http:
        newest = http.get("/v1/version")
        if newest.status_code == 503:
            return None
        demanded = newest.json()["version"]
        listed = http.get("/api/v1/allocations?limit=500", params={"min_version": demanded})
        if listed.status_code == 503:
            return None
    assert listed.status_code == 200, listed.text
    found = int(listed.headers["berth-version"])
    assert found >= demanded
    return found


def served_by_standbys(running: Watched) -> float:
    """How many reads standbys have served."""
    (api,) = [child for child in running.stack._children if child.name == "api"]
    _, text = get(api.plan.metrics_port, "/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(BY_STANDBY))


def wait_served(running: Watched, tenant: Tenant) -> None:
    """Return when a standby has served one more read."""
    before = served_by_standbys(running)
    wait_for(
        lambda: read_newest(running, tenant) is not None and served_by_standbys(running) > before, "a standby serves"
    )


@pytest.mark.full
@pytest.mark.timeout(400)
def test_standbys_serve_reads_before_and_after_a_failover(server_directory: Path) -> None:
    with watched_stack(server_directory / f"reads-{uuid.uuid4().hex[:8]}" / "var", read_standbys=True) as running:
        tenant = running.whole.tenant()
        running.wait_whole()
        wait_served(running, tenant)
        with Load(tenant) as load:
            load.wait_for_more(5)
            read_newest(running, tenant)
            kill_postgres(running.primary())
            load.wait_for_more(5)
            wait_served(running, tenant)
        assert running.violations() == []


def test_standbys_of_one_server_are_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["up", "--read-standbys", "--state-dir", str(tmp_path / "var")])
    assert done.exit_code == USAGE
    assert "--read-standbys needs --ha" in done.output
    assert not (tmp_path / "var").exists()
