"""The whole public application over a real PostgreSQL, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from starlette.testclient import TestClient

from berth.local.authority import ensure_authority
from berth.local.servers import LocalPostgres
from migrations.roles import Role
from orchestrator.app import build_issuer, build_services, public_listener
from orchestrator.database.transactions import Database
from orchestrator.http.services import Services
from orchestrator.nodes.issuer import Issuer
from orchestrator.nodes.issuer_settings import IssuerSettings
from orchestrator.settings import Settings
from tests.api.calling import Caller, Place, insert_admin_key, new_place, new_tenant
from tests.databases import as_role, copied_database

ISSUER_SECONDS_MAX = 30.0
"""How long a request waits for the issuer of a test."""


@dataclass(frozen=True)
class PublicApi:
    """The running application, an operator, and its database to look into."""

    admin: Caller
    database: psycopg.Connection[tuple[object, ...]]
    services: Services | None = None


@pytest.fixture(scope="module")
def api(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublicApi]:
    """One application and database for a module's tests; each test makes its own tenants, regions and nodes.

    Requests run in one event loop, as in a server: calls from several threads are served at the same time.
    """
    directory = tmp_path_factory.mktemp("authority")
    with (
        copied_database(postgres_server, migrated_template) as url,
        serving(url, directory, Role.PUBLIC_API) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def api_without_policies(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublicApi]:
    """As `api`, connected as the owner of the tables. No policy limits the owner: filters of statements are the only barrier."""
    directory = tmp_path_factory.mktemp("authority")
    with copied_database(postgres_server, migrated_template) as url, serving(url, directory, None) as running:
        yield running


@contextmanager
def serving(
    url: str, directory: Path, role: Role | None, peer: str = "testclient", trusted_proxies: Sequence[str] = ()
) -> Iterator[PublicApi]:
    """The application over this database, as this role; None: as the owner of the tables. Requests come from `peer`."""
    settings = settings_over(url, directory, ISSUER_SECONDS_MAX, role)
    services = build_services(settings.model_copy(update={"trusted_proxies": list(trusted_proxies)}))
    with TestClient(public_listener(services), raise_server_exceptions=False, client=(peer, 50000)) as http:
        with issuing(url, directory, http), psycopg.connect(url, autocommit=True) as database:
            yield PublicApi(Caller(http, insert_admin_key(url)), database, services)
        assert http.portal is not None
        http.portal.call(services.context.database.close)


def issuer_settings_over(url: str, directory: Path, certificate_seconds: float = 86_400.0) -> IssuerSettings:
    """The issuer's settings with the authority of `settings_over`."""
    authority = ensure_authority(directory, "berth.local")
    return IssuerSettings(
        database_url=as_role(url, Role.ISSUER),
        node_ca_certificate_file=authority.ca_certificate,
        node_ca_key_file=authority.ca_key,
        deploy_ca_certificate_file=authority.deploy_ca_certificate,
        deploy_ca_key_file=authority.deploy_ca_key,
        node_certificate_seconds=certificate_seconds,
        issuer_poll_seconds=0.02,
    )


@contextmanager
def issuing(url: str, directory: Path, http: TestClient) -> Iterator[None]:
    """An issuer over this database, in the event loop of the application."""
    assert http.portal is not None

    async def build() -> tuple[Issuer, Database]:
        return build_issuer(issuer_settings_over(url, directory))

    issuer, database = http.portal.call(build)
    running = http.portal.start_task_soon(issuer.run)
    try:
        yield
    finally:
        http.portal.call(issuer.stop)
        running.result()
        http.portal.call(database.close)


def settings_over(
    url: str, directory: Path, certificate_wait_seconds: float = 0.0, role: Role | None = Role.PUBLIC_API
) -> Settings:
    """Settings with a development authority of the test's own; by default no request waits for an issuer.

    `role` None: the user of the URL.
    """
    authority = ensure_authority(directory, "berth.local")
    return Settings(
        database_url=url if role is None else as_role(url, role),
        key_set_file=authority.key_set,
        webhook_key_file=authority.webhook_keys,
        certificate_wait_seconds=certificate_wait_seconds,
    )


@pytest.fixture
def admin(api: PublicApi) -> Caller:
    """An operator."""
    return api.admin


@pytest.fixture
def stranger(api: PublicApi) -> Caller:
    """A client without a key."""
    return Caller(api.admin.http, None)


@pytest.fixture
def tenant(admin: Caller) -> Caller:
    """A tenant without a limit, for one test."""
    return new_tenant(admin)


@pytest.fixture
def place(api: PublicApi) -> Place:
    """Eight free GPUs in a new region, for one test; sold by 1, 2 and 8."""
    return new_place(api.admin, api.database)


@pytest.fixture(scope="module")
def module_tenant(api: PublicApi) -> Caller:
    """A tenant without a limit, for the tests of a module: import it as `tenant`."""
    return new_tenant(api.admin)


@pytest.fixture(scope="module")
def module_place(api: PublicApi) -> Place:
    """Eight free GPUs in a new region, for the tests of a module: import it as `place`."""
    return new_place(api.admin, api.database)
