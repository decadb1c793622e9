"""An issuer and a database for each module of tests with tokens; a module that needs another issuer has a fixture for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berth.local.servers import LocalPostgres
from tests.api.tenants.issuer import Issuer, running_issuer
from tests.databases import copied_database


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    """An issuer with one key."""
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database; each test makes new tenants."""
    with copied_database(postgres_server, migrated_template) as url:
        yield url
