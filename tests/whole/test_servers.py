"""Servers die and lose their data, connections are cut, a clock is wrong, all under load: the lifecycle goes on (P14)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from berth.local.processes import ChildProcess
from tests.berth.commands import berth
from tests.proxy import TROUBLES, Chooser, Mode
from tests.support.whole_stack import Whole
from tests.testbuild.interposing import Interposed, build_library
from tests.whole.troubled import Load, TroubledStack, violations_at_rest

pytestmark = pytest.mark.timeout(300)

LINKS = [
    "api > postgres", "node-api > postgres", "relay > postgres", "relay > nats", "worker > postgres", "worker > nats",
    "issuer > postgres", "worker > temporal", "agent eu-1-slice-1 > node-api", "agent us-1-slice-1 > node-api",
]  # fmt: skip


@pytest.fixture(scope="module")
def troubled(server_directory: Path) -> Iterator[Whole]:
    """A stack of this module's own."""
    with TroubledStack(server_directory / "troubled" / "var") as stack:
        yield Whole(stack)
    shutil.rmtree(server_directory / "troubled", ignore_errors=True)


def proxied(whole: Whole) -> TroubledStack:
    """The stack with its proxies."""
    assert isinstance(whole.stack, TroubledStack)
    return whole.stack


# tests/whole/test_trouble.py kills PostgreSQL in `make test`, without load.
@pytest.mark.full
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_postgres_goes_and_comes_back(troubled: Whole, how: str) -> None:
    with Load(troubled) as load:
        load.go_on(1)
        server = troubled.server("postgres")
        getattr(server, how)()
        load.go_on(1)
        server.start()
        load.go_on(1)
    load.settle()
    assert violations_at_rest(troubled) == []


# tests/outbox_relay/test_rebuilding.py rebuilds a lost stream in `make test`.
@pytest.mark.full
def test_nats_loses_its_store_and_gets_it_back_from_postgres(troubled: Whole) -> None:
    with Load(troubled) as load:
        load.go_on(1)
        server = troubled.server("nats")
        server.kill()
        shutil.rmtree(server.directory / "jetstream")
        load.go_on(1)
        server.start()
        state = ("--state-dir", str(troubled.stack.state.path))
        done = berth("events", "rebuild", "--output", "json", *state)
        told = json.loads(done.stdout)
        # The relay may have been faster.
        assert done.returncode == 0 or told["error"]["code"] == "nothing_to_do", done.stdout
        again = berth("events", "rebuild", "--anew", "--output", "json", *state)
        assert again.returncode == 0, again.stdout
        assert json.loads(again.stdout)["first_version"] == 1
        load.go_on(2)
    assert load.settle() == []
    assert violations_at_rest(troubled) == []


# tests/worker/test_rescue.py recovers from a wiped Temporal in `make test`.
@pytest.mark.full
def test_temporal_loses_every_workflow(troubled: Whole) -> None:
    with Load(troubled) as load:
        load.go_on(1)
        server = troubled.server("temporal")
        server.kill()
        for file in server.directory.glob("temporal.db*"):
            file.unlink()
        load.go_on(1)
        server.start()
        load.go_on(1)
    load.settle()
    assert violations_at_rest(troubled) == []


def trouble_links(whole: Whole, seed: int, links: list[str], seconds: tuple[float, float]) -> list[str]:
    """The broken promises after trouble on each of the links once, under load, of the seed's choice."""
    chooser = Chooser(seed)
    with Load(whole, seed) as load:
        for name, mode in chooser.plan(links):
            with proxied(whole).proxies.troubled(name, mode):
                load.go_on(chooser.seconds(*seconds))
            load.go_on(0.3)
    load.settle()
    return violations_at_rest(whole)


@pytest.mark.full
def test_every_link_is_troubled_once(troubled: Whole) -> None:
    assert set(LINKS) <= set(proxied(troubled).proxies.by_name)
    assert all(proxied(troubled).proxies.by_name[name].passed_bytes > 0 for name in LINKS)
    assert trouble_links(troubled, 1, LINKS, (0.5, 2.0)) == []


@pytest.mark.full
@pytest.mark.parametrize("mode", TROUBLES)
@pytest.mark.parametrize("link", LINKS)
def test_each_link_in_each_trouble(troubled: Whole, link: str, mode: Mode) -> None:
    with Load(troubled) as load:
        load.go_on(0.5)
        with proxied(troubled).proxies.troubled(link, mode):
            load.go_on(4)
    load.settle()
    assert violations_at_rest(troubled) == []


@pytest.mark.full
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_links_in_trouble_by_seed(troubled: Whole, seed: int) -> None:
    assert trouble_links(troubled, seed, LINKS * 2, (1.0, 8.0)) == []


# tests/node_agent/test_admission.py judges times by the server's clock in `make test`.
@pytest.mark.full
@pytest.mark.parametrize("offset_seconds", [-300, 300])
def test_an_agents_clock_is_wrong_by_five_minutes(troubled: Whole, tmp_path: Path, offset_seconds: int) -> None:
    """It judges tasks by the server's time, and its certificates are good for the minutes before and after."""
    wrong = Interposed(build_library(tmp_path), tmp_path / "control")
    wrong.set_clock(offset_seconds)
    name = "agent eu-1-slice-1"
    (child,) = [child for child in troubled.stack._children if child.name == name]
    environment = {**child.plan.environment, **wrong.environment}
    agent = ChildProcess(replace(child.plan, environment=environment), tmp_path / "agent.log")
    troubled.kill(name)
    agent.spawn()
    try:
        agent.wait_ready()
        told = json.loads(agent.log.read_text().splitlines()[-1])["timestamp"]
        ahead = datetime.fromisoformat(told) - datetime.now(UTC)
        assert abs(ahead.total_seconds() - offset_seconds) < 60, "its clock is wrong"
        with Load(troubled) as load:
            load.go_on(2)
        assert load.settle() == []
        assert violations_at_rest(troubled) == []
    finally:
        agent.kill()
        troubled.start(name)
