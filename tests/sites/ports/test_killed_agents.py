"""Real agents of a site move ports of a real switch, and are killed in between: the next one goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from node_agent.site.crash_points import CrashPoint
from tests.at_length import at_length
from tests.deploy_system.stage import MAC
from tests.sites.stage import Machine, Site, Stage
from tests.support.waiting import wait_for
from tests.switches.lab import BRIDGES, FILTERING, MACHINE, PROVISIONING, Lab, laboratory, why_no_lab

BEFORE_MOVED, AFTER_ONE = f"{CrashPoint.PORTS_BEFORE_MOVED}:1", f"{CrashPoint.PORTS_AFTER_ONE}:2"
MODE = BRIDGES if why_no_lab(FILTERING) else FILTERING


def switches_file(lab: Lab, directory: Path) -> str:
    """The list of switches as the agents have it."""
    mode = {"bridge": "br0"} if lab.mode == FILTERING else {"bridge_prefix": "seg"}
    listed = {"leaf-1": {"driver": "linux_bridge", "namespace": lab.name, **mode}, "by-hand": {"driver": "noop"}}
    path = directory / "switches.json"
    path.write_text(json.dumps(listed))
    return str(path)


def placed(stage: Stage, site: Site, machine: Machine) -> str:
    """The machine has a port; the path of its ports."""
    site.put_bmc(machine)
    stage.fleet.connection.execute("update nodes set state = 'cordoned' where id = %s", (machine.node_id,))
    segments = {"provisioning_vlan": PROVISIONING, "first_tenant_vlan": 1001, "last_tenant_vlan": 1002}
    stage.admin.put(f"/admin/sites/{site.id}/segments", segments)
    path = f"/admin/nodes/{machine.node_id}/ports"
    ports = [
        {"switch": "by-hand", "port": "Ethernet8", "mac": "52:54:00:00:00:99"},
        {"switch": "leaf-1", "port": MACHINE, "mac": MAC},
    ]
    found = stage.admin.put(path, {"ports": ports})
    assert (found["isolation"], found["place"]) == ("none", None)
    return path


@pytest.mark.full
@pytest.mark.parametrize("at", at_length([BEFORE_MOVED, AFTER_ONE], [AFTER_ONE]))
def test_a_move_goes_on_when_the_agent_is_killed(stage: Stage, site: Site, tmp_path: Path, at: str) -> None:
    with laboratory(MODE) as lab, stage.machine() as machine:
        listed = switches_file(lab, tmp_path)
        path_of = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
        first = site.agent("first", crash_at=at, BERTH_SITE_SWITCHES_FILE=listed, PATH=path_of)
        site.wait_for_holder("first")
        second = site.agent("second", BERTH_SITE_SWITCHES_FILE=listed, PATH=path_of)
        path = placed(stage, site, machine)
        stage.admin.make(f"{path}/move", {"to": "provisioning"})
        wait_for(first.died, "the first agent kills itself", 60)
        assert stage.admin.get(path)["proven_at"] is None
        wait_for(lambda: stage.admin.get(path)["proven_at"] is not None, "the move is proven", 60)
        assert lab.reached() == {"deploy", "bmc"}
        found = stage.admin.get(path)
        assert (found["place"], found["vlan"], found["task"]["outcome"]) == ("provisioning", PROVISIONING, "completed")
        assert found["isolation"] == "none", "one of its ports is moved by hand"
        assert second.says('"event":"ports_placed"')
        assert second.metric("berth_site_agent_tasks_total", type="metal.move_ports", outcome="completed") == 1.0
        stage.admin.make(f"{path}/move", {"to": "shut"})
        wait_for(lambda: stage.admin.get(path)["proven_at"] is not None, "it is shut", 60)
        assert lab.reached() == set()


def test_an_agent_with_a_wrong_list_of_switches_does_not_start(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "switches.json"
    path.write_text('{"leaf-1": {"driver": "none"}}')
    agent = site.agent("wrong", start=False, BERTH_SITE_SWITCHES_FILE=str(path))
    agent.start()
    wait_for(agent.died, "it ends", 30)
    assert agent.says("BERTH_SITE_SWITCHES_FILE: ")
    assert agent.says("leaf-1")
