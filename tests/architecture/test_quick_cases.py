"""`quick` names the cases of a test that `make test` runs; the others are full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distribution import mark_cases_that_are_full

ROOT = Path(__file__).parents[2]
CASES = """
import pytest

@pytest.mark.quick("b", "c")
@pytest.mark.parametrize("case", ["a", "b", "c", "d"])
def test_cases(case: str) -> None:
    assert case in ("b", "c")

def test_without_cases() -> None:
    assert True
"""
CONFTEST = """
import pytest
from tests.distribution import mark_cases_that_are_full

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_cases_that_are_full(items, whole=True)
"""


def outcome(folder: Path, cases: str) -> str:
    """What pytest prints of the cases that are not full."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_cases.py").write_text(cases)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  full: x\n  quick(*ids): x\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not full"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_the_cases_that_are_named_run(tmp_path: Path) -> None:
    assert "3 passed, 2 deselected" in outcome(tmp_path, CASES)


@pytest.mark.full
def test_a_name_of_no_case_is_an_error(tmp_path: Path) -> None:
    assert "`quick` names what is no case: test_cases.py::test_cases[e]" in outcome(
        tmp_path, CASES.replace('"b", "c")', '"e")', 1)
    )


def test_a_single_test_may_be_asked_for(request: pytest.FixtureRequest) -> None:
    mark_cases_that_are_full([request.node], whole=False)
    assert request.node.get_closest_marker("full") is None
