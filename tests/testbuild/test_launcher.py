"""The test build's launcher: refuses unknown options, dies at the named place, and is no part of the product."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbuild.killing import REACHED, kill_at, written_in

ROOT = Path(__file__).parents[2]


def launch(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.testbuild", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], **environment},
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ([], {}, "'' is none of orchestrator"),
        (["json.tool"], {}, "'json.tool' is none of"),
        (["worker"], {"BERTH_CRASH_AT": "no.such:1"}, "worker has no crash point 'no.such'; it has"),
        (["worker"], {"BERTH_CRASH_AT": "nonsense"}, "worker has no crash point 'nonsense'"),
        (["outbox_relay"], {"BERTH_CRASH_AT": "publishing.before_send:0"}, "counts from 1"),
        (["outbox_relay"], {"BERTH_CRASH_AT": "publishing.before_send:x"}, "counts from 1"),
        (["node_agent"], {"BERTH_CRASH_AT": "publishing.before_send:1"}, "node_agent has no crash point"),
        (["node_agent"], {"BERTH_PLANTED_BUG": "no_such"}, "there is no planted bug 'no_such'"),
    ],
)
def test_what_is_unknown_is_reported_in_one_sentence(
    arguments: list[str], environment: dict[str, str], said: str
) -> None:
    done = launch(*arguments, **environment)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_process_behind_it_is_the_ordinary_one() -> None:
    done = launch("outbox_relay", BERTH_CRASH_AT="publishing.before_send:1")
    ordinary = subprocess.run(
        [sys.executable, "-m", "outbox_relay"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (ordinary.returncode, ordinary.stderr)
    assert "BERTH_DATABASE_URL" in done.stderr


def test_it_dies_when_the_label_is_reached_for_the_nth_time(monkeypatch: pytest.MonkeyPatch) -> None:
    died: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: died.append((pid, number)))
    on_reached = kill_at(lambda: "here:2")
    for point, dead in (("here", False), ("there", False), ("here", True), ("here", True)):
        on_reached(point)
        assert bool(died) is dead
    assert died == [(os.getpid(), signal.SIGKILL)]
    assert REACHED.format("here:2") == "crash point reached: here:2"


def test_a_running_process_is_armed_and_disarmed_by_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    died: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: died.append(number))
    file = tmp_path / "crash-at"
    on_reached = kill_at(written_in(file))
    on_reached("here")
    file.write_text("here:2\n")
    on_reached("here")
    assert died == [], "counted from when it was armed"
    file.unlink()
    on_reached("here")
    file.write_text("here:2\n")
    on_reached("here")
    assert died == [signal.SIGKILL]


def test_the_product_never_asks_for_it() -> None:
    for package in ("berth", "orchestrator", "worker", "outbox_relay", "node_agent", "migrations"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            assert "BERTH_CRASH_AT" not in text, path
            assert "BERTH_PLANTED_BUG" not in text, path
            assert "crash_at" not in text, path
