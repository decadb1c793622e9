"""The command line in this process, against a real API."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from berth.cli.main import app
from berth.local.servers import LocalPostgres
from tests.client.deployment import Deployment, running_deployment

RUNNER = CliRunner()


ID = "00000000-0000-0000-0000-00000000ffff"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the settings of the environment that runs the tests, and change to a directory without a stack."""
    for name in [name for name in os.environ if name.startswith("BERTH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def deployment(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """One API process for the module."""
    with running_deployment(postgres_server, migrated_template, tmp_path_factory.mktemp("cli")) as running:
        yield running


class Shell:
    """Command lines with one key."""

    def __init__(self, address: str, key: str | None) -> None:
        self.settings = {"BERTH_API_URL": address, "BERTH_API_KEY": key or ""}

    def run(self, line: str) -> Result:
        """One command line."""
        return RUNNER.invoke(app, shlex.split(line), env=self.settings)

    def json(self, line: str) -> Any:
        """What a command line that succeeds prints for programs; the same one for people says something as well."""
        done = self.run(f"{line} --output json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def refused(self, line: str, code: str, exit_code: int = 1) -> str:
        """The one sentence of a command line that is refused."""
        text, as_json = self.run(line), self.run(f"{line} --output json")
        assert text.exit_code == as_json.exit_code == exit_code, text.output + as_json.output
        assert json.loads(as_json.stdout)["error"]["code"] == code
        (sentence,) = text.stderr.strip().splitlines()
        assert sentence.startswith("berth: ")
        return sentence
