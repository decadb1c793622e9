"""The demo's jobs, percentiles, checks, state directory, and its reaction to signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import asyncssh
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from berth.cli.main import app
from berth.client import Connection
from berth.local import fleet
from berth.local.demo.act import Act, percentile
from berth.local.demo.interruption import run_interruptibly
from berth.local.demo.ssh_probe import known_host
from berth.local.demo.trace import EXCERPT, LIFE_SECONDS_LEAST, LIFE_SECONDS_MAX, read_jobs
from berth.local.fleet import DEMO_AGENTS, plan_fleet, plan_guest_fleet
from berth.local.state import MARK


def test_the_excerpt_is_real_and_large_enough() -> None:
    jobs = read_jobs(20.0)
    assert len(jobs) >= 300
    assert jobs[0].arrives_seconds == 0
    assert jobs[-1].arrives_seconds == pytest.approx(20.0)
    assert [job.arrives_seconds for job in jobs] == sorted(job.arrives_seconds for job in jobs)
    assert all(LIFE_SECONDS_LEAST <= job.life_seconds <= LIFE_SECONDS_MAX for job in jobs)
    assert any(job.gpus > fleet.SLOTS for job in jobs)
    assert {job.gpus for job in jobs} <= set(fleet.SLICE_COUNTS)
    said = re.search(r"(\d+) consecutive jobs", EXCERPT.with_name("SOURCE.txt").read_text())
    assert said is not None
    assert int(said[1]) == len(jobs)


def test_jobs_out_of_order_are_refused(tmp_path: Path) -> None:
    header, first, *rest = EXCERPT.read_text().splitlines()
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("\n".join([header, *rest, first]))
    with pytest.raises(ValueError, match="not sorted"):
        read_jobs(20.0, shuffled)


def test_the_fleet_of_the_demo() -> None:
    nodes = plan_fleet(DEMO_AGENTS)
    places = [(node.region, node.shape) for node in nodes]
    for region in fleet.REGIONS:
        assert places.count((region, "gpu_slice")) == 2
        assert places.count((region, "baremetal")) == 1
    assert len({node.name for node in nodes}) == len(nodes)


def test_two_nodes_with_guests_share_no_name_and_no_user() -> None:
    nodes = plan_guest_fleet()
    assert [node.region for node in nodes] == list(fleet.REGIONS)
    users = [node.user_id_first + slot for node in nodes for slot in range(node.slots)]
    assert len(set(users)) == len(users) == 8
    assert len({node.name for node in nodes}) == len(nodes)


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=300), share=st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert found is not None
    assert sum(1 for value in values if value <= found) >= share * len(values)
    assert sum(1 for value in values if value < found) < share * len(values)


def test_an_act_without_checks_or_with_a_failed_check_has_not_held() -> None:
    assert not Act("x", "claims nothing").held
    kept = Act("x", "claims one thing")
    kept.check("this", True)
    assert kept.held
    act = Act("x", "breaks one claim")
    act.check("this", True)
    act.check("that", False)
    assert not act.held
    assert act.as_data()["checks"] == [{"claim": "this", "held": True}, {"claim": "that", "held": False}]


@pytest.mark.parametrize("port", [22, 20_022])
def test_the_host_key_of_an_allocation_is_trusted_at_its_port(port: int) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    known = asyncssh.import_known_hosts(
        known_host(Connection(host="10.0.2.31", port=port, user="tenant", host_key=key))
    )
    trusted = asyncssh.match_known_hosts(known, "10.0.2.31", "10.0.2.31", port)[0]
    assert {found.export_public_key().decode().strip() for found in trusted} == {key}


def test_a_signal_cancels_the_coroutine_before_the_caller_is_interrupted() -> None:
    ended: list[str] = []

    async def work() -> str:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append("in order")
        return "never"

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(work())
    assert ended == ["in order"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("arguments", "variables", "directory"),
    [
        ([], {}, "var/demo"),
        (["--state-dir", "var"], {}, "var"),
        (["--state-dir", "./var/"], {}, "var"),
        (["--state-dir", "elsewhere"], {}, "elsewhere"),
        ([], {"BERTH_STATE_DIR": "var"}, "var"),
    ],
)
def test_the_demo_uses_the_named_state_directory(
    arguments: list[str], variables: dict[str, str], directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BERTH_STATE_DIR", raising=False)
    for taken in ("var", "var/demo", "elsewhere"):
        (tmp_path / taken).mkdir()
        (tmp_path / taken / MARK).write_text("{}")
    refused = CliRunner().invoke(app, ["demo", *arguments], env=variables)
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"berth: {directory} holds a stack's state")
