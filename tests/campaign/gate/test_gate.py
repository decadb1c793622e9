"""The gate counts only whole results of the present code, goes on where it was killed, and fails when a run failed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.gate import __main__ as command
from tests.campaign.gate.gate import CampaignEnded, Gate, ProductChanged, campaign, plan
from tests.campaign.gate.results import PRODUCT, ROOT, Result, Run, product_hash, result_of
from tests.support.waiting import wait_for

RUNS = plan(3, 30, 1)


def report(**changes: Any) -> dict[str, Any]:
    """Of a campaign in which all was well."""
    recovery = {
        "fault": "kill process", "target": "api", "seconds": 3.0, "undisturbed_seconds": 2.0, "watched_seconds": 9.0,
        "budget_seconds": 20.0, "late": False,
    }  # fmt: skip
    well = {
        "violations": [], "faults": {"kill process": 2}, "faults_undone": [],
        "operations": {"create": {"done": 5, "unknown:timeout": 1}},
        "ambiguous": 1, "ambiguous_resolved": 1, "recoveries": [recovery],
    }  # fmt: skip
    return {**well, **changes}


class Playing:
    """Pretended campaigns. `reports`: of single seeds."""

    def __init__(self, reports: dict[int, dict[str, Any]] | None = None) -> None:
        self.played: list[int] = []
        self.product = "a" * 64
        self._reports = reports or {}

    def __call__(self, run: Run, directory: Path) -> dict[str, Any]:
        self.played.append(run.seed)
        return self._reports.get(run.seed, report())


def go_on(directory: Path, playing: Playing, **options: bool) -> list[Result]:
    return Gate(directory, lambda _: None, playing, lambda: playing.product).go_on(RUNS, **options)


def test_every_run_has_a_result_and_is_run_once(tmp_path: Path) -> None:
    playing = Playing()
    results = go_on(tmp_path, playing)
    assert [result.run for result in results] == RUNS
    assert [run.calm for run in RUNS] == [False, False, False, True]
    assert len({run.seed for run in RUNS}) == len(RUNS)
    assert all(result.passed for result in results)
    assert (results[0].faults, results[0].writes, results[0].ambiguous) == (2, 6, 1)
    assert go_on(tmp_path, playing) == results
    assert playing.played == [run.seed for run in RUNS]


def test_a_gate_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    program = f"""
import pathlib, sys, time
sys.path.insert(0, {str(ROOT)!r})
from tests.campaign.gate.gate import Gate
from tests.campaign.gate.test_gate import RUNS, Playing
playing = Playing()
def play(run, directory):
    if run.seed == RUNS[2].seed:
        print("third", flush=True)
        sys.stdin.read()
    return playing(run, directory)
Gate(pathlib.Path({str(tmp_path)!r}), lambda _: None, play, lambda: playing.product).go_on(RUNS)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"third\n"
        killed.kill()
    playing = Playing()
    assert len(go_on(tmp_path, playing)) == 4
    assert playing.played == [RUNS[2].seed, RUNS[3].seed]


def test_a_campaign_dies_with_its_gate(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.campaign.gate.gate import _die_with_parent
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, preexec_fn=_die_with_parent)
print(child.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as gate:
        assert gate.stdout is not None
        child = Path(f"/proc/{int(gate.stdout.readline())}/stat")
        gate.kill()
    wait_for(lambda: not child.exists() or child.read_text().split()[2] == "Z", "the campaign has ended")
    assert gate.returncode == -9


def test_only_results_of_the_present_code_count(tmp_path: Path) -> None:
    playing = Playing()
    go_on(tmp_path, playing)
    playing.product = "b" * 64
    assert {result.product for result in go_on(tmp_path, playing)} == {"b" * 64}
    assert len(playing.played) == 2 * len(RUNS)
    playing.product = "a" * 64
    go_on(tmp_path, playing)
    assert len(playing.played) == 2 * len(RUNS), "the earlier results are there still"


def test_a_change_during_a_run_ends_the_gate(tmp_path: Path) -> None:
    playing = Playing()

    def play(run: Run, directory: Path) -> dict[str, Any]:
        playing.product = "b" * 64
        return playing(run, directory)

    gate = Gate(tmp_path, lambda _: None, play, lambda: playing.product)
    with pytest.raises(ProductChanged, match="changed during seed 1"):
        gate.go_on(RUNS)
    assert list((tmp_path / "results").iterdir()) == []


VIOLATION = {"check": "one holder", "sentence": "two on a slot"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"violations": [VIOLATION]}, "violation: one holder: two on a slot"),
        ({"ambiguous": 3}, "2 ambiguous outcomes were not resolved"),
        ({"recoveries": [{**report()["recoveries"][0], "undisturbed_seconds": 21.0, "late": True}]},
         "late: kill process (api): 21.0 s, budget 20 s"),
        ({"faults": {}}, "no fault was carried out"),
        ({"operations": {}}, "nothing was written"),
        ({"faults_undone": ["freeze api: gone"]}, "1 of 3 faults were not carried out: freeze api: gone"),
    ],
)  # fmt: skip
def test_a_run_that_found_something_fails_until_it_is_repeated(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    playing = Playing({2: report(**changes)})
    assert [result.problems for result in go_on(tmp_path, playing)] == [[], [problem], [], []]
    assert [result.problems for result in go_on(tmp_path, playing)] == [[], [problem], [], []]
    assert len(playing.played) == len(RUNS), "a failed run is a result"
    well = Playing()
    assert all(result.passed for result in go_on(tmp_path, well, again=True))
    assert well.played == [2]


def test_a_campaign_without_a_report_fails(tmp_path: Path) -> None:
    def play(run: Run, directory: Path) -> dict[str, Any]:
        raise CampaignEnded(f"the campaign of {run.seed} ended with -11 and without a report")

    (result,) = Gate(tmp_path, lambda _: None, play, lambda: "a" * 64).go_on(RUNS[:1])
    assert result.problems == ["the campaign of 1 ended with -11 and without a report"]


def test_a_campaign_gets_what_its_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda arguments, **_: asked.append(arguments))
    for run in plan(2, 30, 1):
        with pytest.raises((CampaignEnded, AttributeError)):
            campaign(run, tmp_path)
    assert ["--ha" in arguments for arguments in asked] == [False, True, False]
    assert ["inf" in arguments for arguments in asked] == [False, False, True]


def test_a_fault_in_ten_may_be_impossible() -> None:
    undone = {"faults": {"kill process": 9}, "faults_undone": ["freeze api: gone"]}
    assert result_of("a", Run(1, 30, calm=False), report(**undone)).passed


def test_a_calm_run_needs_no_fault() -> None:
    assert result_of("a", Run(1, 30, calm=True), report(faults={})).passed


DAMAGES = ["", "{", "[]", "null", '{"product": "a"}', "cut", "other run", "text for a number"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_run_again(tmp_path: Path, damage: str) -> None:
    playing = Playing()
    go_on(tmp_path, playing)
    (file,) = (tmp_path / "results").glob("*ha-2-*.json")
    document = json.loads(file.read_text())
    texts = {
        "cut": file.read_text()[:-20],
        "other run": json.dumps({**document, "run": {**document["run"], "seed": 3}}),
        "text for a number": json.dumps({**document, "violations": "none"}),
    }
    file.write_text(texts.get(damage, damage))
    assert all(result.passed for result in go_on(tmp_path, playing))
    assert playing.played[len(RUNS) :] == [2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runs", "twenty"], "'twenty' is no whole number from 0 on"),
        (["--runs", "-1"], "is no whole number from 0 on"),
        (["--calm", "2.5"], "'2.5' is no whole number from 0 on"),
        (["--minutes", ""], "'' is no number of minutes from 0.5 on"),
        (["--minutes", "soon"], "'soon' is no number of minutes from 0.5 on"),
        (["--minutes", "nan"], "'nan' is no number of minutes from 0.5 on"),
        (["--minutes", "inf"], "'inf' is no number of minutes from 0.5 on"),
        (["--minutes", "0"], "'0' is no number of minutes from 0.5 on"),
        (["--runs", "0", "--calm", "0"], "nothing would be tested"),
    ],
)
def test_numbers_that_are_none_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], said: str
) -> None:
    joined = [f"{name}={value}" for name, value in zip(arguments[::2], arguments[1::2], strict=True)]
    with pytest.raises(SystemExit) as ended:
        command.main(joined)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_table_has_a_line_for_each_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    playing = Playing({3: report(violations=[VIOLATION])})
    playing.product = product_hash()
    go_on(tmp_path, playing)
    assert command.main(["--table", "--runs=3", "--calm=1", f"--directory={tmp_path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    product = playing.product[:12]
    assert lines[2:6] == [
        f"| 1 | 30 | one each | 2 | 6 | 1, 1 | 0 | {product} |",
        f"| 2 | 30 | three each | 2 | 6 | 1, 1 | 0 | {product} |",
        f"| 3 | 30 | one each | 2 | 6 | 1, 1 | 1 | {product} |",
        f"| 1001 | 30 | one each | none | 6 | 1, 1 | 0 | {product} |",
    ]
    assert lines[7] == "kill process: 4, p50 2.0 s, p99 2.0 s, max 2.0 s, budget 20 s"


def test_the_hash_is_of_every_file_of_the_product(tmp_path: Path) -> None:
    for package in PRODUCT:
        (tmp_path / package / "inner").mkdir(parents=True)
        (tmp_path / package / "inner" / "code.py").write_text("x = 1\n")
    hashes = [product_hash(tmp_path)]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.py").write_text("y = 1\n")
    cache = tmp_path / "worker" / "__pycache__"
    cache.mkdir()
    (cache / "code.pyc").write_bytes(b"x")
    assert product_hash(tmp_path) == hashes[0]
    for package in PRODUCT:
        (tmp_path / package / "inner" / "code.py").write_text("x = 2\n")
        hashes.append(product_hash(tmp_path))
    (tmp_path / "worker" / "inner" / "code.py").rename(tmp_path / "worker" / "inner" / "other.py")
    hashes.append(product_hash(tmp_path))
    (tmp_path / "migrations" / "inner" / "function.sql").write_text("select 1;\n")
    hashes.append(product_hash(tmp_path))
    assert len(set(hashes)) == len(hashes)
