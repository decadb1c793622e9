"""The failure that a node reported."""

from __future__ import annotations

from node_agent.protocol import FailureCode, ResultReport


def code(report: ResultReport) -> FailureCode:
    assert report.failure is not None, report
    return report.failure.code
