"""A plugin of pytest: `--outcomes FILE` writes the outcome of each test, by node id, to FILE as JSON.

`passed`, `failed` (also by its teardown), `skipped`, or `error` (its setup failed; it did not run).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


class Recorder:
    """Keeps the outcome of each test, and writes all of them when the session ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record one phase of a test: a later phase changes the outcome only to the worse."""
        if report.failed:
            outcome = "error" if report.when == "setup" else "failed"
        else:
            outcome = "skipped" if report.skipped else "passed"
        if outcome != "passed" or report.when == "call":
            self._outcomes[report.nodeid] = outcome

    def pytest_sessionfinish(self) -> None:
        """Write what was recorded."""
        self._file.write_text(json.dumps(self._outcomes))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--outcomes", type=Path, help="write the outcome of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that sees every report, which a process of pytest-xdist does not."""
    file = config.getoption("--outcomes")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(file))
