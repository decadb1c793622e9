"""One application and one receiver for the tests of a module; each test makes its own tenants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berth.local.servers import LocalPostgres
from tests.webhooks.receivers import Receiver, receiving
from tests.webhooks.stage import WebhookStage, open_stage


@pytest.fixture(scope="module")
def stage(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebhookStage]:
    """Webhooks may go anywhere."""
    with open_stage(postgres_server, migrated_template, tmp_path_factory.mktemp("authority")) as opened:
        yield opened


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server of the test's own."""
    with receiving() as (one,):
        yield one


@pytest.fixture(scope="module")
def strict_stage(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebhookStage]:
    """As deployments are: nothing but https, and nothing private."""
    strict = {"webhook_http_allowed": False, "webhook_private_addresses_allowed": False, "webhook_ports": [443, 8443]}
    with open_stage(postgres_server, migrated_template, tmp_path_factory.mktemp("strict"), **strict) as opened:
        yield opened
