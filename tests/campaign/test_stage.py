"""The stage can start: campaigns run in `make test-full` alone, and what breaks their stage would go unnoticed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from berth.local.authority import ensure_authority
from berth.local.processes import Endpoints
from berth.local.state import Ports
from tests.campaign.stage import Stage


def test_no_port_is_listened_on_twice(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    try:
        stage.state.prepare()
        stage._ports = Ports(stage.state)
        port = stage._ports.of
        endpoints = Endpoints(
            "postgresql://127.0.0.1:1/none", "nats://127.0.0.1:2", "127.0.0.1:3", port("api"), port("node-api"),
            console_port=port("consoles"),
        )  # fmt: skip
        plans = stage._control_plane(endpoints, ensure_authority(stage.state.secrets, "berth.local"))
        ports = Counter(port for plan in plans for port in (plan.metrics_port, *plan.ports.values()))
        assert {plan.environment.get("BERTH_CONSOLE_PORT") for plan in plans if plan.name.startswith("api")} <= {
            str(port) for port in ports
        }
        assert {port: count for port, count in ports.items() if count > 1} == {}
    finally:
        stage.links.close()
        stage.routes.close()
