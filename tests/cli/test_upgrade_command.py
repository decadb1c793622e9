"""`berth node upgrade` against a real API: waves, the gate, halt and rollback, repetition, and bad input.

The command of a node writes what its new agent would report into the database.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli.rollout.commands import _Rollout
from berth.cli.rollout.waves import Standing, wave_sizes, why_left_out, why_not_ready, why_worse
from berth.client import Node, Unavailable
from tests.api.calling import Place as Where
from tests.api.calling import new_tenant, rent
from tests.client.deployment import Deployment
from tests.cutting import Cut, Place, Plan
from tests.placement.fleet import ADD_NODES, SEED
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]

UPGRADED = """
import os, sys, psycopg
name, version = os.environ["BERTH_NODE"], sys.argv[2]
assert os.environ["BERTH_NODE_ADDRESS"] and os.environ["BERTH_UPGRADE_TO"]
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("update nodes set agent_version = %s where name = %s", (version, name))
    if name in sys.argv[3:]:
        connection.execute("update slots set state = 'out_of_service', reason = 'quarantined' where slot_index = 3 and node_id ="
                           " (select id from nodes where name = %s)", (name,))
with open(sys.argv[0] + ".log", "a") as log:
    print(name, version, file=log)
"""
QUICK = "--ready-seconds 3 --settle-seconds 0"


class Scene:
    """Nodes of the test, and the command that upgrades one."""

    def __init__(self, deployment: Deployment, directory: Path, count: int) -> None:
        self.deployment, self.script = deployment, directory / "upgrade.py"
        self.script.write_text(UPGRADED)
        database = deployment.database
        if database.execute("select count(*) from regions").fetchone() == (0,):
            database.execute(SEED)
        database.execute("update nodes set agent_version = 'other', online = false")
        database.execute(ADD_NODES, (count, "gpu_slice"))
        rows = database.execute(
            "update nodes set agent_version = '0.2.0', enrolled_at = clock_timestamp() where agent_version is null"
            " returning name"
        ).fetchall()
        self.names = sorted(row[0] for row in rows)
        self.nodes = " ".join(f"--node {name}" for name in self.names)
        self.shell = Shell(deployment.address, deployment.admin.key)

    def command(self, version: str, breaks: Sequence[str] = ()) -> str:
        url = self.deployment.database.info
        address = f"postgresql://{url.user}:{url.password}@{url.host}:{url.port}/{url.dbname}"
        return shlex.join([sys.executable, str(self.script), address, version, *breaks])

    def upgrade(self, more: str, run: str | None = None) -> Any:
        """The result of one run as programs see it, and its exit code."""
        run = run or self.command("0.3.0")
        return self.shell.run(f"node upgrade --to 0.3.0 --run {shlex.quote(run)} {QUICK} {self.nodes} {more}")

    def versions(self) -> list[str]:
        rows = self.deployment.database.execute(
            "select agent_version from nodes where name = any (%s) order by name", (self.names,)
        )
        return [row[0] for row in rows]

    def holders(self) -> list[str]:
        """Allocations on the nodes."""
        rows = self.deployment.database.execute(
            "select a.id::text from allocations a join nodes n on n.id = a.node_id where n.name = any (%s)",
            (self.names,),
        )
        return [row[0] for row in rows]

    def ran(self) -> list[str]:
        """The nodes for which a command ran, in order."""
        log = Path(f"{self.script}.log")
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_waves_follow_one_another_and_a_second_run_has_nothing_to_do(deployment: Deployment, tmp_path: Path) -> None:
    scene = Scene(deployment, tmp_path, 5)
    planned = scene.shell.run(f"node upgrade --to 0.3.0 --run true {scene.nodes} --wave 1 --wave 40% --plan")
    assert [line.split()[1:] for line in planned.stdout.splitlines()[1:]] == [["wave", n] for n in "12233"]
    assert scene.ran() == []
    done = scene.upgrade("--wave 1 --wave 40%")
    assert done.exit_code == 0, done.output
    assert [line for line in done.stdout.splitlines() if line.startswith("wave")] == [
        "wave 1 of 3: 1 nodes", "wave 2 of 3: 2 nodes", "wave 3 of 3: 2 nodes",
    ]  # fmt: skip
    assert scene.versions() == ["0.3.0"] * 5
    assert scene.ran()[0] == scene.names[0]
    again = scene.upgrade("")
    assert again.exit_code == 0
    assert again.stdout.count("left out: it has the version") == 5
    assert len(scene.ran()) == 5


def test_a_node_with_an_allocation_is_upgraded(deployment: Deployment, tmp_path: Path) -> None:
    scene = Scene(deployment, tmp_path, 1)
    made = rent(new_tenant(deployment.admin), Where("eu-1", "h100.slice", None))
    assert scene.holders() == [made["allocation_id"]]
    done = scene.upgrade("")
    assert done.exit_code == 0, done.output
    assert scene.versions() == ["0.3.0"]


def test_a_wave_that_is_worse_halts_and_is_rolled_back(deployment: Deployment, tmp_path: Path) -> None:
    scene = Scene(deployment, tmp_path, 4)
    broken = scene.names[1]
    rollback = shlex.quote(scene.command("0.2.0"))
    done = scene.upgrade(f"--wave 1 --wave 2 --rollback {rollback} --output json", run=scene.command("0.3.0", [broken]))
    assert done.exit_code == 1
    assert json.loads(done.stdout)["halted"] == f"wave 2: {broken}: slots out of service: 3"
    assert scene.versions() == ["0.3.0", "0.2.0", "0.2.0", "0.2.0"]
    text = " ".join(done.stdout.split())
    for part in ('"outcome": "upgraded"', "halted: slots out of service: 3; rolled back", '"outcome": "not begun"'):
        assert part in text


class Away:
    """Reads through the proxy are cut `times` times, from the end of a step on: of the command, or of waiting for agents."""

    def __init__(self, scene: Scene, patch: pytest.MonkeyPatch, times: int, after: str = "_commands") -> None:
        proxy = scene.deployment.proxy
        scene.shell = Shell(proxy.address, scene.deployment.admin.key)
        self.plan = Plan(Cut(Place.BEFORE), method="GET", times=times)
        step = getattr(_Rollout, after)

        def then_away(*arguments: Any) -> Any:
            failed = step(*arguments)
            patch.setattr(proxy, "_plan", self.plan)
            return failed

        patch.setattr(_Rollout, after, then_away)


@pytest.mark.quick("before agents serve")
@pytest.mark.parametrize("after", ["_commands", "_wait_ready"], ids=["before agents serve", "while the wave settles"])
def test_an_api_that_is_away_for_longer_than_a_request_is_tried_again(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    scene = Scene(deployment, tmp_path, 2)
    away = Away(scene, monkeypatch, times=15, after=after)
    done = scene.upgrade("--wave 2 --ready-seconds 60 --output json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "to": "0.3.0", "halted": None, "nodes": [{"node": name, "outcome": "upgraded"} for name in scene.names],
    }  # fmt: skip
    assert len(away.plan.made) == 15, "more than the client tries within 3 s"


def test_an_api_that_stays_away_halts_the_wave_with_its_rollback_and_an_outcome_of_each_node(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(deployment, tmp_path, 3)
    Away(scene, monkeypatch, times=10_000)
    rollback = shlex.quote(scene.command("0.2.0"))
    done = scene.upgrade(f"--wave 2 --ready-seconds 1 --rollback {rollback} --output json")
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert document["halted"].startswith(f"wave 1: {scene.names[0]}: its state is not known: unreachable: ")
    outcomes = {one["node"]: one["outcome"] for one in document["nodes"]}
    for name in scene.names[:2]:
        assert "; rollback failed: its state is not known: unreachable: " in outcomes[name]
    assert outcomes[scene.names[2]] == "not begun"
    assert scene.versions() == ["0.2.0"] * 3, "the command of the rollback ran"


def test_an_api_that_is_away_before_the_next_wave_halts_without_a_command(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(deployment, tmp_path, 2)
    standing = _Rollout._standing

    def unknown(rollout: Any, node: Node) -> Standing:
        if node.name == scene.names[1]:
            raise Unavailable("refused", code="unreachable")
        return standing(rollout, node)

    monkeypatch.setattr(_Rollout, "_standing", unknown)
    done = scene.upgrade("--wave 1 --wave 1 --ready-seconds 1 --output json")
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout) == {
        "to": "0.3.0", "halted": "wave 2: not begun: its state is not known: unreachable: refused",
        "nodes": [{"node": name, "outcome": end} for name, end in zip(scene.names, ("upgraded", "not begun"), strict=True)],
    }  # fmt: skip
    assert scene.ran() == scene.names[:1]


@pytest.mark.full
def test_a_node_that_does_not_come_back_or_whose_command_fails_halts(deployment: Deployment, tmp_path: Path) -> None:
    scene = Scene(deployment, tmp_path, 2)
    fails = scene.upgrade("--wave 1", run="echo no space left; exit 7")
    assert fails.exit_code == 1
    assert "its command ended with 7: no space left" in fails.stderr
    hangs = scene.upgrade("--wave 1 --command-seconds 1", run="setsid sleep 8 & sleep 60")
    assert "its command took longer than 1 s" in hangs.stderr
    same = scene.upgrade("--wave 1", run="true")
    assert f"wave 1: {scene.names[0]}: its agent has version 0.2.0 after 3 s" in same.stderr
    assert "not begun" in same.stdout
    away = scene.upgrade("--wave 1 --rollback true", run="true")
    assert "; rolled back" in away.stdout, "its version is the one of before"
    assert scene.versions() == ["0.2.0", "0.2.0"]


def test_nodes_out_of_reach_are_left_out_and_bad_input_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    scene = Scene(deployment, tmp_path, 1)
    deployment.database.execute("update nodes set online = false where name = %s", (scene.names[0],))
    assert "left out: it is offline" in scene.upgrade("").stdout
    assert scene.ran() == []
    for more in ("--wave 0", "--wave 101%", "--wave x", "--wave -1"):
        scene.shell.refused(f"node upgrade --to 1 --run true {scene.nodes} {more}", "usage", 2)
    scene.shell.refused("node upgrade --to '' --run true", "usage", 2)
    scene.shell.refused("node upgrade --to 1 --run true --node no-such-node", "not_found")


@given(
    st.lists(st.one_of(st.integers(1, 500).map(str), st.integers(1, 100).map(lambda n: f"{n}%"))), st.integers(0, 999)
)
def test_waves_hold_every_node_once(wanted: list[str], nodes: int) -> None:
    sizes = wave_sizes(wanted, nodes)
    assert sum(sizes) == nodes
    assert all(size > 0 for size in sizes)
    for text, size in zip(wanted, sizes, strict=False):
        asked = int(text[:-1]) * nodes // 100 if text.endswith("%") else int(text)
        assert size <= max(1, asked)


def node(**changes: object) -> Node:
    """A node that serves with version 2."""
    found = {
        "state": "active", "online": True, "agent_version": "2", "identity_conflict_at": None, "key_set_refusal": None,
    }  # fmt: skip
    return cast(Node, SimpleNamespace(**{**found, **changes}))


def test_what_keeps_a_node_from_its_upgrade_and_from_passing() -> None:
    assert why_left_out(node(agent_version="1"), "2") is None
    for changes in ({"state": "retired"}, {"state": "registered"}, {"state": "enrolling"}, {"agent_version": None}, {}):
        assert why_left_out(node(**{"agent_version": "1", **changes} if changes else {}), "2") is not None
    assert why_not_ready(node(), "2") is None
    for name, value in (
        ("online", False),
        ("agent_version", "1"),
        ("identity_conflict_at", 1),
        ("key_set_refusal", "x"),
    ):
        assert why_not_ready(node(**{name: value}), "2") is not None
    was = Standing(1, frozenset({1}), frozenset({UUID(int=1)}), frozenset({"xid 0"}))
    assert why_worse(was, Standing(0, frozenset(), frozenset(), frozenset())) is None
    assert why_worse(was, was) is None
    for worse in (
        Standing(2, was.slots_out_of_service, was.unhealthy_allocations, was.faults),
        Standing(1, frozenset({1, 2}), was.unhealthy_allocations, was.faults),
        Standing(1, was.slots_out_of_service, frozenset({UUID(int=2)}), was.faults),
        Standing(1, was.slots_out_of_service, was.unhealthy_allocations, frozenset({"xid 1"})),
    ):
        assert why_worse(was, worse) is not None
