"""A control plane for deploy systems, shared by the tests of a module; each test makes new nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.servers import LocalPostgres
from tests.databases import copied_database
from tests.deploy_system.stage import Stage
from tests.deploy_system.starting import Started


@pytest.fixture(scope="package")
def stage(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: LocalPostgres, migrated_template: str
) -> Iterator[Stage]:
    """The running control plane."""
    with (
        copied_database(postgres_server, migrated_template) as url,
        Stage(tmp_path_factory.mktemp("deploy"), url).running() as running,
    ):
        yield running


@pytest.fixture
def machines(stage: Stage, tmp_path: Path) -> Iterator[list[Started]]:
    """Machines that end with the test."""
    started: list[Started] = []
    yield started
    for one in started:
        one.kill()
