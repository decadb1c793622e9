"""`GET /api/v1/usage`: parts that add up to the ledger to the unit, days, pages, open intervals, and what is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from berth.client import Client
from berth.local.servers import LocalPostgres
from tests.allocations.driving import provision, release, run_with
from tests.allocations.seeding import PRICE, create_allocation, seed
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem, refusal
from tests.api.processes import public_process
from tests.consumers.metered import meter_all
from tests.databases import copied_database

MONTH = {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}


class Used:
    """An API over allocations whose times are known, metered."""

    def __init__(self, admin: Caller, tenant: Caller, closed: uuid.UUID, still_open: uuid.UUID, url: str) -> None:
        self.admin, self.tenant, self.closed, self.open, self.url = admin, tenant, closed, still_open, url


@pytest.fixture(scope="module")
def used(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Used]:
    """One of two GPUs over three midnights of January, in odd microseconds; one of one GPU that is active."""
    with copied_database(postgres_server, migrated_template) as url:
        seeded = seed(url)
        closed, still_open = create_allocation(url, seeded, gpus=2), create_allocation(url, seeded)

        async def live(context: object) -> None:
            await provision(context, url, closed)  # type: ignore[arg-type]
            await provision(context, url, still_open)  # type: ignore[arg-type]
            await release(context, seeded, closed)  # type: ignore[arg-type]

        run_with(url, live)
        since, until = "2026-01-30T22:13:07.000001Z", "2026-02-02T03:00:00.123457Z"
        with psycopg.connect(url, autocommit=True) as database:
            database.execute(
                "update allocations set active_at = %s, releasing_at = %s where id = %s", (since, until, closed)
            )
            for name, kind in (
                ("active_at", "provisioning.active"),
                ("releasing_at", "provisioning.releasing.requested"),
            ):
                database.execute(
                    "update outbox set payload = payload || jsonb_build_object(%s::text, %s::text) where event_type = %s"
                    " and subject = %s",
                    (name, since if name == "active_at" else until, kind, f"allocations/{closed}"),
                )
        meter_all(url)
        with public_process(url, tmp_path_factory.mktemp("usage")) as http:
            admin = Caller(http, insert_admin_key(url))
            body = {"name": "usage", "role": "tenant", "tenant_id": str(seeded.tenant_id)}
            tenant = Caller(http, admin.make("/admin/api-keys", body)["key"], str(seeded.tenant_id))
            yield Used(admin, tenant, closed, still_open, url)


def test_parts_add_up_to_the_ledger(used: Used) -> None:
    with psycopg.connect(used.url) as database:
        row = database.execute("select amount_micro_units, gpu_microseconds from ledger").fetchone()
    assert row is not None
    since, until = datetime(2026, 1, 30, 22, 13, 7, 1, tzinfo=UTC), datetime(2026, 2, 2, 3, 0, 0, 123457, tzinfo=UTC)
    microseconds = (until - since) // timedelta(microseconds=1)
    assert row == (2 * PRICE * microseconds // 1_000_000, 2 * microseconds)
    window = {"from": "2026-01-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"}
    (whole,) = used.tenant.get("/usage", by="allocation", **window)["items"]
    days = used.tenant.get("/usage", **window)["items"]
    (of_tenant,) = used.admin.get("/usage", by="tenant", tenant_id=used.tenant.tenant_id, **window)["items"]
    assert [day["day"] for day in days] == ["2026-01-30", "2026-01-31", "2026-02-01", "2026-02-02"]
    assert days[1]["gpu_microseconds"] == 2 * 86_400 * 1_000_000
    for name, meant in (("amount_micro_units", row[0]), ("gpu_microseconds", row[1])):
        assert whole[name] == of_tenant[name] == sum(day[name] for day in days) == meant
    months = [
        used.tenant.get("/usage", by="allocation", **each)["items"][0]
        for each in (MONTH, {"from": "2026-02-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"})
    ]
    assert sum(month["amount_micro_units"] for month in months) == row[0]
    assert (months[0]["ends_at"], months[1]["starts_at"]) == ("2026-02-01T00:00:00.000000Z",) * 2
    assert (whole["allocation_id"], whole["gpus"], whole["price_version"]) == (str(used.closed), 2, 1)
    assert not whole["is_open"]
    assert whole["price_micro_per_gpu_second"] == PRICE


def test_what_is_active_counts_up_to_now(used: Used) -> None:
    first, second = (used.tenant.get("/usage", by="allocation")["items"] for _ in range(2))
    assert [item["allocation_id"] for item in first] == [str(used.open)]
    assert first[0]["is_open"]
    assert 0 < first[0]["gpu_microseconds"] < second[0]["gpu_microseconds"]
    assert used.tenant.get("/usage")["items"][-1]["is_open"]
    for end in ("2026-02-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        assert len(used.tenant.get("/usage", by="allocation", to=end)["items"]) == (1 if end.startswith("2026") else 0)


def test_pages_and_whose(used: Used) -> None:
    window = {"from": "2026-01-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"}
    assert len(used.admin.every("/usage", 1, **window)) == 4
    stranger = new_tenant(used.admin)
    assert stranger.get("/usage", **window)["items"] == []
    problem(stranger.call("GET", "/usage", tenant_id=used.tenant.tenant_id), 404, "not_found")
    with Client(str(used.admin.http.base_url), used.tenant.key) as client:
        found = list(
            client.iterate_usage(by="day", begin=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 3, 1, tzinfo=UTC))
        )
    assert [item.allocations for item in found] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}, "range_invalid"),
        ({"from": "2026-02-02T00:00:00Z", "to": "2026-02-01T00:00:00Z"}, "range_invalid"),
        ({"from": "2024-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}, "range_invalid"),
        ({"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"}, "range_invalid"),
        ({"from": "yesterday"}, "invalid"), ({"by": "hour"}, "invalid"), ({"since": "2026-01-01T00:00:00Z"}, "invalid"),
        ({"cursor": "nonsense"}, "invalid_cursor"), ({"limit": "0"}, "invalid"),
    ],
)  # fmt: skip
def test_what_is_refused(used: Used, query: dict[str, str], code: str) -> None:
    answer = used.tenant.call("GET", "/usage", None, **query)
    assert refusal(answer) == (answer.status_code if answer.status_code in (400, 422) else 422, code)


def test_from_the_command_line(used: Used, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.shell import Shell

    monkeypatch.chdir(tmp_path)
    shell = Shell(str(used.admin.http.base_url), used.admin.key)
    line = "usage --from 2026-01-01T00:00:00Z --to 2026-03-01T00:00:00Z"
    for by, number in (("day", 4), ("allocation", 1), ("tenant", 1)):
        assert len(shell.json(f"{line} --by {by} --tenant {used.tenant.tenant_id}")["items"]) == number
        assert shell.run(f"{line} --by {by}").exit_code == 0
