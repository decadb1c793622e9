"""The catalogue of failures is whole: every code of node and control plane, said on one page, and never silent."""

from __future__ import annotations

import runpy
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from node_agent.protocol import FailureCode
from orchestrator.allocations.failures import FAILURES, Code, Retried, may_pass, next_step_of
from orchestrator.allocations.rules import fault_labels, switches_of
from orchestrator.retries import Retries

ROOT = Path(__file__).parents[2]
SWITCHES = (ROOT / "docs" / "reference" / "sandbox-driver.md").read_text()


def test_every_code_that_a_node_can_report_is_in_it() -> None:
    assert {code.value for code in FailureCode} <= {code.value for code in Code}
    assert set(FAILURES) == set(Code)


def test_every_failure_has_its_next_step() -> None:
    for failure in FAILURES.values():
        assert next_step_of(failure.code.value) == failure.next_step
        for sentence in (failure.happened, failure.next_step):
            assert sentence.endswith("."), failure.code
            assert len(sentence) > 20, failure.code
    assert next_step_of(None) is None
    assert next_step_of("of a newer release") is None
    assert {code.value for code in Code if may_pass(code.value)} == {"lease_conflict", "interrupted"}
    assert {f.code for f in FAILURES.values() if f.retried is Retried.RELEASE} == {Code.CLEANUP_FAILED}


def test_every_switch_is_documented_and_the_page_is_the_catalogue() -> None:
    for failure in FAILURES.values():
        assert failure.switch is None or f"| `{failure.switch}` |" in SWITCHES, failure.switch
    reference = runpy.run_path(str(ROOT / "deploy" / "failure_reference.py"))
    page = (ROOT / "docs" / "reference" / "failures.md").read_text()
    assert page == reference["page_with_table"](page), "run .venv/bin/python deploy/failure_reference.py"
    assert all(f"| `{code}` |" in page for code in Code)


@given(st.integers(1, 10**6), st.floats(0.001, 100), st.floats(0.001, 1000))
def test_pauses_never_shrink_and_are_bounded(attempt: int, first_seconds: float, max_seconds: float) -> None:
    retries = Retries(3, first_seconds, max_seconds)
    assert 0 < retries.pause_seconds(attempt) <= retries.pause_seconds(attempt + 1) <= max_seconds
    assert retries.pause_seconds(1) == min(first_seconds, max_seconds)
    assert retries.left_after(attempt) is (attempt < 3)


def test_only_labels_with_the_prefix_throw_switches() -> None:
    labels = {"berth.fault/vfio": "1", "team": "vision", "berth.fault": "1", "x/berth.fault/vfio": "1"}
    assert fault_labels(labels) == ["berth.fault/vfio"]
    assert switches_of(labels) == {"vfio": "1"}
