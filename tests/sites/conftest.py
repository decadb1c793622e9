"""A running stage, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berth.local.servers import LocalPostgres
from tests.sites.stage import Site, Stage, staged


@pytest.fixture(scope="module")
def stage(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Processes and database for a module; each test makes its own sites and machines.

    They end with the module: idle beside the other files below, they would take a tenth of a processor.
    """
    with staged(postgres_server, migrated_template, tmp_path_factory.mktemp("sites")) as running:
        yield running


@pytest.fixture
def site(stage: Stage) -> Iterator[Site]:
    """A site whose agents are killed after the test."""
    made = stage.site()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[Site]:
    """A site whose one agent holds the lease, for tests that need no more of it: each makes its own machines."""
    made = stage.site()
    made.agent("a")
    made.wait_for_holder("a")
    yield made
    made.stop()
