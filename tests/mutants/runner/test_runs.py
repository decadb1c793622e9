"""The runner of mutants judges exit statuses: only a test that passes without a mutant can catch it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import __main__ as runner
from tests.mutants.mutant import Mutant
from tests.mutants.runner import recorder
from tests.mutants.runner.runs import Run, TestsDidNotRun, outcome_of, run_tests, unfit_tests

TESTS = """
import pytest

@pytest.mark.parametrize("one", [1, 2])
def test_passes(one): pass

def test_passes_too(): assert True

def test_fails(): assert not "holds"

@pytest.mark.skip(reason="no such tool")
def test_is_skipped(): pass

@pytest.fixture
def server(): raise OSError

def test_has_no_server(server): pass

@pytest.fixture
def log(): yield; raise OSError

def test_leaves_errors_in_the_log(log): pass
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a tree with one file of tests and a file that cannot be collected; plugins beside xdist are not loaded."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    package = tmp_path / "tests" / "mutants" / "runner"
    package.mkdir(parents=True)
    shutil.copy(Path(recorder.__file__), package)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text("import no_such_module")
    (tmp_path / "test_endless.py").write_text("import threading\ndef test_waits(): threading.Event().wait()")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist\n")
    return tmp_path


def run(tree: Path, *arguments: str, seconds_max: float = 60) -> Run:
    return run_tests(tree, arguments, "-n", "0", seconds_max=seconds_max)


def test_each_outcome_is_recorded(tree: Path) -> None:
    done = run(tree, "test_some.py")
    assert done.status == 1
    assert done.ran
    assert done.outcomes == {
        "test_some.py::test_passes[1]": "passed",
        "test_some.py::test_passes[2]": "passed",
        "test_some.py::test_passes_too": "passed",
        "test_some.py::test_fails": "failed",
        "test_some.py::test_is_skipped": "skipped",
        "test_some.py::test_has_no_server": "error",
        "test_some.py::test_leaves_errors_in_the_log": "failed",
    }


def test_processes_of_xdist_record_once(tree: Path) -> None:
    done = run_tests(tree, ["test_some.py"], "-n", "1", seconds_max=60)
    assert done.ran
    assert len(done.outcomes) == 7


def test_a_test_that_fails_or_is_skipped_without_a_mutant_can_catch_none(tree: Path) -> None:
    names = ("passes", "passes_too", "fails", "is_skipped", "has_no_server")
    ids = [f"test_some.py::test_{name}" for name in names]
    assert unfit_tests(run(tree, "test_some.py"), ids) == {
        ids[2]: f"{ids[2]} fails without a mutant",
        ids[3]: f"{ids[3]} is skipped without a mutant",
        ids[4]: f"{ids[4]} fails without a mutant",
    }


def test_a_failing_test_does_not_spoil_one_whose_name_is_longer(tree: Path) -> None:
    (tree / "test_some.py").write_text("def test_a(): pass\ndef test_ab(): assert 0")
    ids = ["test_some.py::test_a", "test_some.py::test_ab"]
    assert list(unfit_tests(run(tree, "test_some.py"), ids)) == [ids[1]]


def test_a_test_that_did_not_run_can_catch_none(tree: Path) -> None:
    ids = ["test_some.py::test_passes_too", "test_some.py::test_passes"]
    assert unfit_tests(run(tree, ids[0]), ids) == {ids[1]: f"{ids[1]} did not run without a mutant"}


@pytest.mark.parametrize(
    ("arguments", "seconds_max", "why"),
    [
        (["test_broken.py", "test_some.py"], 60, "exit status is 2 (it was interrupted, or could not collect a file)"),
        pytest.param(
            ["test_some.py::test_unknown"],
            60,
            "exit status is 4 (wrong usage, or no such test)",
            marks=pytest.mark.full,
        ),
        pytest.param(["test_some.py", "-k", "nothing"], 60, "exit status is 5 (no test)", marks=pytest.mark.full),
        (["test_endless.py"], 3, "the tests did not end within 3 s"),
    ],
)
def test_tests_that_cannot_run_without_a_mutant_end_the_run(
    tree: Path, arguments: list[str], seconds_max: float, why: str
) -> None:
    done = run(tree, *arguments, seconds_max=seconds_max)
    assert not done.ran
    with pytest.raises(TestsDidNotRun, match=f"^No mutant was planted.*{re.escape(why)}"):
        unfit_tests(done, ["test_some.py::test_passes"])
    assert outcome_of(done)[0] == "broken"


@pytest.mark.parametrize(
    ("status", "outcomes", "outcome"),
    [
        (0, {"a": "passed", "b": "skipped"}, "survived"),
        (0, {"a": "skipped"}, "broken"),
        (0, {}, "broken"),
        (0, {"a": "failed"}, "broken"),
        (1, {"a": "passed", "b": "failed"}, "caught"),
        (1, {"a": "passed", "b": "error"}, "broken"),
        (1, {"a": "passed"}, "broken"),
        (2, {"a": "failed"}, "broken"),
        (-9, {}, "broken"),
        (None, {}, "broken"),
    ],
)
def test_outcome_of_a_mutant(status: int | None, outcomes: dict[str, str], outcome: str) -> None:
    assert outcome_of(Run(status, outcomes))[0] == outcome


@pytest.mark.parametrize(
    ("test", "sentence", "status"),
    [
        ("test_passes", "1 survived (1 unlisted), 0 broken", 1),
        ("test_fails", "test_code.py::test_fails fails without a mutant", 2),
        pytest.param("test_skips", "test_code.py::test_skips is skipped without a mutant", 2, marks=pytest.mark.full),
        pytest.param(
            "test_gone", "No mutant was planted, because the tests did not run without one", 2, marks=pytest.mark.full
        ),
        ("test_catches", "1 caught, 0 survived (0 unlisted), 0 broken", 0),
    ],
)
def test_the_exit_status_of_a_run(
    tree: Path,
    test: str,
    sentence: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tree / "code.py").write_text("LIMIT = 1\n")
    (tree / "test_code.py").write_text(
        "import code, pathlib, pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert 0\n"
        "def test_skips(): pytest.skip('no tool')\n"
        "def test_catches(): assert pathlib.Path('code.py').read_text() == 'LIMIT = 1\\n'\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    mutant = Mutant("without a limit", "edge", "code.py", "LIMIT = 1", "LIMIT = 2", (f"test_code.py::{test}",))
    monkeypatch.setattr(runner, "ROOT", tree)
    monkeypatch.setattr(runner, "MUTANTS", (mutant,))
    monkeypatch.setattr(sys, "argv", ["mutants", "--parallel", "1"])
    assert runner.main() == status
    assert sentence in capsys.readouterr().out
