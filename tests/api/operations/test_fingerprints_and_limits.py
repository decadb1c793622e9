"""Query parameters are part of a fingerprint, bodies have an exact limit, and only business refusals are stored."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator import problems as errors
from orchestrator.allocations.commands import create as create_allocations
from orchestrator.database.transactions import Transaction
from orchestrator.log import refusals as log_refusals
from orchestrator.nodes.refusals import AttestationReason, AttestationRefused
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.problems import NotFound, Problem
from orchestrator.reservations.commands import hold as hold_resources
from orchestrator.settings import Settings
from tests.allocations.driving import operation, rows_of, run_with
from tests.allocations.seeding import Seeded, add_tenant
from tests.api.calling import Caller, fresh, new_place, new_tenant, one_gpu, problem
from tests.support.foreign import bearer
from tests.support.public_api import PublicApi

LIMIT = int(Settings.model_fields["body_bytes_max"].default)


def test_the_query_is_part_of_a_writes_fingerprint(api: PublicApi) -> None:
    place, key = new_place(api.admin, api.database), fresh("write")
    one, other = new_tenant(api.admin), new_tenant(api.admin)
    made = one.make("/allocations", one_gpu(one, place))["allocation_id"]
    path = f"/allocations/{made}/release"
    first = api.admin.call("POST", path, key=key, tenant_id=one.tenant_id)
    assert first.status_code == 202, first.text
    again = api.admin.call("POST", path, key=key, tenant_id=one.tenant_id)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    for query in ({"tenant_id": other.tenant_id}, {"tenant_id": str(one.tenant_id).upper()}):
        problem(api.admin.call("POST", path, key=key, **query), 422, "operation_conflict")


def padded(name: str, length: int) -> bytes:
    """The body of a new tenant, of so many bytes."""
    body = json.dumps({"name": name}).encode()
    return body[:-1] + b" " * (length - len(body)) + body[-1:]


def in_pieces(body: bytes) -> Iterator[bytes]:
    """Without Content-Length."""
    yield body[:1000]
    yield body[1000:]


@pytest.mark.parametrize("pieces", [False, True], ids=["with_length", "chunked"])
def test_a_body_may_have_exactly_the_limit_and_no_byte_more(pieces: bool, api: PublicApi) -> None:
    def send(length: int) -> Any:
        body = padded(fresh("tenant"), length)
        headers = {**bearer(api.admin), "content-type": "application/json"}
        content: Any = in_pieces(body) if pieces else body
        return api.admin.http.post("/api/v1/admin/tenants", content=content, headers=headers)

    assert send(LIMIT).status_code == 201
    problem(send(LIMIT + 1), 413, "too_large")


def refusals(kind: type[Problem] = Problem) -> Iterator[type[Problem]]:
    """Every kind of refusal that is no outcome of business."""
    for one in kind.__subclasses__():
        if not one.business and one is not errors.Unforeseen:
            yield one
        yield from refusals(one)


def refusal_of(kind: type[Problem]) -> Problem:
    """A refusal of this kind."""
    if kind is AttestationRefused:
        return AttestationRefused(AttestationReason.MALFORMED, "not now")
    return kind("not now")


NOT_OF_BUSINESS = sorted(refusals(), key=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def seeded(api: PublicApi) -> tuple[str, Seeded]:
    """The database of the module, and a tenant in it."""
    info = api.database.info
    url = f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}"
    return url, add_tenant(api.database, fresh("seeded"))


def test_there_are_refusals_that_are_no_outcome_of_business() -> None:
    assert {errors.Overloaded, errors.Invalid, errors.DatabaseUnavailable, errors.OutcomeUnknown} <= {*NOT_OF_BUSINESS}
    assert {log_refusals.VersionNotReached, log_refusals.LeaderUnaccepted} <= {*NOT_OF_BUSINESS}


@pytest.mark.parametrize("kind", NOT_OF_BUSINESS, ids=lambda kind: kind.__name__)
def test_a_refusal_that_is_no_outcome_of_business_is_never_stored(
    kind: type[Problem], seeded: tuple[str, Seeded]
) -> None:
    url, tenant = seeded
    key = fresh("refused")

    async def run(context: Context) -> None:
        async def refuse(tx: Transaction) -> Done:
            raise refusal_of(kind)

        async def succeed(tx: Transaction) -> Done:
            return Done(200, {"done": True})

        with pytest.raises(kind):
            await run_once(context, operation(tenant, key), refuse, tenant.tenant_id)
        assert rows_of(url, "select 1 from operations where key = %s", key) == []
        answer = await run_once(context, operation(tenant, key), succeed, tenant.tenant_id)
        assert (answer.status, answer.replayed) == (200, False), "the key runs as if it were new"

    run_with(url, run)


def test_in_a_batch_business_refusals_alone_are_stored(seeded: tuple[str, Seeded]) -> None:
    url, tenant = seeded
    refused = [refusal_of(kind) for kind in NOT_OF_BUSINESS] + [NotFound("there is none")]
    keys = [fresh("together") for _ in refused]

    class Asked:
        """A create or a hold, as far as its refusal needs it."""

        def __init__(self, key: str) -> None:
            self.operation, self.tenant_id, self.hold = operation(tenant, key), tenant.tenant_id, self

    async def run(context: Context) -> None:
        asked: Any = {number: Asked(key) for number, key in enumerate(keys)}
        answers = await create_allocations._refuse(context, asked, dict(enumerate(refused)))
        assert [answers[number] for number in range(len(refused) - 1)] == refused[:-1]
        holds: Any = [Asked(f"{key}-hold") for key in keys]
        results = await hold_resources._store_refusals(context, holds, list(refused))
        assert results[:-1] == refused[:-1]

    run_with(url, run)
    found = rows_of(url, "select key from operations where key like 'together-%%' order by key")
    assert found == [(keys[-1],), (f"{keys[-1]}-hold",)]


def test_a_create_that_does_not_fit_leaves_its_key_free(api: PublicApi) -> None:
    place, tenant, key = new_place(api.admin, api.database), new_tenant(api.admin), str(uuid.uuid4())
    body = one_gpu(tenant, place)
    problem(tenant.call("POST", "/allocations", {**body, "gpus": 0}, key=key), 422, "invalid")
    assert tenant.call("POST", "/allocations", body, key=key).status_code == 201


def used(caller: Caller, by: str) -> list[Any]:
    """The usage of today and yesterday."""
    items: list[Any] = caller.get("/usage", by=by)["items"]
    return items


def test_usage_after_a_price_change_charges_each_allocation_its_own_price(api: PublicApi) -> None:
    place, tenant = new_place(api.admin, api.database), new_tenant(api.admin)
    (sku,) = [one for one in tenant.every("/skus", 100) if one["name"] == place.sku]
    body = {name: sku[name] for name in ("shape", "gpu_model", "allowed_counts", "default_image")}
    made, prices = [], (1_000_000, 3_000_000, 0)
    for price in prices:
        api.admin.put(f"/admin/skus/{place.sku}", {**body, "price_micro_per_gpu_second": price})
        made.append(tenant.make("/allocations", one_gpu(tenant, place))["allocation_id"])
    api.database.execute(
        "update allocations set active_at = clock_timestamp() - interval '20 s', releasing_at = active_at"
        " where tenant_id = %s",
        (tenant.tenant_id,),
    )
    api.database.execute(
        "update allocations set releasing_at = active_at + interval '10 s' where tenant_id = %s", (tenant.tenant_id,)
    )
    lines = {line["allocation_id"]: line for line in used(tenant, "allocation")}
    found = [lines[one] for one in made]
    assert [line["price_micro_per_gpu_second"] for line in found] == list(prices)
    assert [line["amount_micro_units"] for line in found] == [10 * price for price in prices]
    assert len({line["price_version"] for line in found}) == 3
    for by in ("day", "tenant"):
        assert sum(line["amount_micro_units"] for line in used(tenant, by)) == 10 * sum(prices)
        assert sum(line["gpu_microseconds"] for line in used(tenant, by)) == 30_000_000
