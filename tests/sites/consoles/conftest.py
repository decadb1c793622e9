"""A running stage, shared by the tests of this folder, and a site with one agent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berth.local.servers import LocalPostgres
from tests.databases import copied_database
from tests.sites.consoles.staging import ConsoleSites
from tests.sites.stage import Site


@pytest.fixture(scope="package")
def stage(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleSites]:
    """Each test makes its own machines; those that kill agents, their own sites too."""
    with copied_database(postgres_server, migrated_template) as url:
        running = ConsoleSites(url, tmp_path_factory.mktemp("consoles"))
        running.start()
        try:
            yield running
        finally:
            running.close()


@pytest.fixture(scope="package")
def site(stage: ConsoleSites) -> Iterator[Site]:
    """A site whose one agent holds the lease."""
    made = stage.site()
    made.agent("a")
    made.wait_for_holder("a")
    yield made
    made.stop()


@pytest.fixture
def own_site(stage: ConsoleSites) -> Iterator[Site]:
    """A site without agents, which are killed after the test."""
    made = stage.site()
    yield made
    made.stop()
