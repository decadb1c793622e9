"""An address that sends wrong credentials is slowed down; callers at other addresses, and keys in use, are not."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import insert_admin_key, problem
from tests.api.processes import metric_of, public_process
from tests.databases import copied_database

MOST = 5
SLOW = {"BERTH_FAILED_ATTEMPTS_MAX": str(MOST), "BERTH_FAILED_ATTEMPTS_PER_SECOND": "0.001"}
BEHIND_PROXY = {"BERTH_TRUSTED_PROXIES": '["127.0.0.0/8"]'}


@pytest.fixture(scope="module")
def database(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    with copied_database(postgres_server, migrated_template) as url:
        yield url


def ask(http: httpx.Client, key: str, source: str, method: str = "GET") -> httpx.Response:
    """A request that says it comes from `source`."""
    path = "/api/v1/regions" if method == "GET" else "/api/v1/reservations"
    return http.request(method, path, headers={"authorization": f"Bearer {key}", "x-forwarded-for": source})


def fail(http: httpx.Client, source: str, method: str = "GET") -> list[int]:
    """The statuses of more failures than are allowed at once."""
    return [ask(http, f"berth_unknown_{number}", source, method).status_code for number in range(MOST + 2)]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_failures_behind_a_proxy_slow_down_their_own_address(
    database: str, tmp_path_factory: pytest.TempPathFactory, method: str
) -> None:
    key, other = insert_admin_key(database), insert_admin_key(database)
    with public_process(database, tmp_path_factory.mktemp("api"), SLOW | BEHIND_PROXY) as http:
        assert ask(http, key, "203.0.113.7").status_code == 200
        assert fail(http, "203.0.113.7", method) == [401] * MOST + [429] * 2
        refusal = ask(http, other, "203.0.113.7")
        assert problem(refusal, 429, "too_many_failures")["outcome"] == "not_done"
        assert refusal.headers["retry-after"] == "1"
        assert ask(http, key, "203.0.113.7").status_code == 200, "this key is at work"
        assert ask(http, other, "203.0.113.8").status_code == 200, "another caller"
        assert fail(http, "unknown", method) == [401] * (MOST + 2), "the proxy does not say whose failures these are"
        assert metric_of(http, 'berth_api_failed_attempts_total{result="refused"}') == 3


def test_a_forged_header_is_no_other_address(database: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with public_process(database, tmp_path_factory.mktemp("api"), SLOW) as http:
        statuses = [ask(http, f"berth_unknown_{n}", f"203.0.113.{n}").status_code for n in range(MOST + 2)]
        assert statuses == [401] * MOST + [429] * 2
        assert http.get("/api/v1/regions").status_code == 401, "no credential is no attempt"
