"""A socket that a token opened ends with the right of its token: at its expiry, and when its tenant is suspended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from berth.local.servers import LocalPostgres
from tests.api.tenants.issuer import AUDIENCE, Issuer, running_issuer
from tests.consoles.conftest import BOUNDS
from tests.consoles.stage import ConsoleStage, console_stage
from tests.consoles.talking import SECONDS_MAX, attached, ending, message
from tests.databases import copied_database

LEFT_SECONDS = 15
"""What is left of the short token: enough to open both sockets on a busy machine."""


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def tokens(
    postgres_server: LocalPostgres,
    migrated_template: str,
    issuer: Issuer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ConsoleStage]:
    """A process that takes this issuer's tokens."""
    directory = tmp_path_factory.mktemp("tokens")
    settings = {
        "BERTH_OIDC_ISSUER": issuer.url, "BERTH_OIDC_AUDIENCE": AUDIENCE, "BERTH_OIDC_LEEWAY_SECONDS": "0",
        "BERTH_NOTIFICATIONS_RECHECK_SECONDS": "0.2", **BOUNDS,
    }  # fmt: skip
    with (
        copied_database(postgres_server, migrated_template) as url,
        console_stage(url, directory, **settings) as running,
    ):
        yield running


def token_of(stage: ConsoleStage, issuer: Issuer, **claims: Any) -> str:
    """A token for the tenant of the stage."""
    return issuer.token("first", berth_tenant=str(stage.seeded.tenant_id), **claims)


def notified(stage: ConsoleStage, token: str) -> ClientConnection:
    """An open socket of notifications, past its first message."""
    url = f"ws{stage.api.removeprefix('http')}/api/v1/notifications"
    headers = {"authorization": f"Bearer {token}"}
    socket: ClientConnection = connect(url, additional_headers=headers, open_timeout=SECONDS_MAX, proxy=None)
    assert message(socket)["type"] == "begin"
    return socket


@pytest.mark.full
def test_the_expiry_of_its_token_ends_a_socket(tokens: ConsoleStage, issuer: Issuer) -> None:
    allocation = tokens.active()
    token = token_of(tokens, issuer, exp=int(time.time()) + LEFT_SECONDS)
    with attached(tokens.api, token, allocation) as console, notified(tokens, token) as notifications:
        session_id = message(console)["session_id"]
        tokens.joined(session_id)
        assert message(console)["type"] == "begin"
        assert ending(console) == (4401, "unauthenticated")
        assert ending(notifications)[0] == 4401
    assert tokens.ended(session_id)["reason"] == "unauthenticated"


def test_the_suspension_of_its_tenant_ends_a_socket(tokens: ConsoleStage, issuer: Issuer) -> None:
    allocation, token = tokens.active(), token_of(tokens, issuer)
    with attached(tokens.api, token, allocation) as console, notified(tokens, token) as notifications:
        session_id = message(console)["session_id"]
        tokens.joined(session_id)
        assert message(console)["type"] == "begin"
        tokens.execute("update tenants set state = 'suspended' where id = %s", tokens.seeded.tenant_id)
        try:
            assert ending(console) == (4401, "unauthenticated")
            assert ending(notifications)[0] == 4401
        finally:
            tokens.execute("update tenants set state = 'active' where id = %s", tokens.seeded.tenant_id)
    assert tokens.ended(session_id)["reason"] == "unauthenticated"
