"""The connection is cut at every kind of place of an exchange with a real API, and the client finds out by itself.

Once cut, a write succeeds with the retry, once done. Cut every time, it is settled by asking for its key: the answer that
was lost, or the certainty that nothing was done and nothing will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from berth import client as berth
from berth.local.servers import LocalPostgres
from tests.client.deployment import Deployment, Tenant, new_client_tenant, running_deployment
from tests.cutting import CUTS, Cut, Place

NEVER_ARRIVES = {Place.BEFORE, Place.IN_HEAD, Place.IN_BODY}
ALWAYS = 1_000_000
SHORT_SECONDS = 0.3


@pytest.fixture(scope="module")
def deployment(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """One API process for the module."""
    directory = tmp_path_factory.mktemp("cut")
    with running_deployment(postgres_server, migrated_template, directory) as running:
        yield running


@dataclass(frozen=True)
class Write:
    """One kind of write: `prepare` makes what it needs and answers how to do it; `effects` counts what it did."""

    prepare: Callable[[Tenant], Callable[..., Any]]
    effects: Callable[[Deployment, str], int]
    is_result: Callable[[Any], bool]


def _create(tenant: Tenant) -> Callable[..., Any]:
    tenant.move_if_full()
    return tenant.create


def _release(tenant: Tenant) -> Callable[..., Any]:
    tenant.move_if_full()
    made = tenant.create()
    return lambda **named: tenant.call("release_allocation", made.allocation_id, **named)


def _created(deployment: Deployment, key: str) -> int:
    rows = deployment.count("select count(*) from allocations where operation_key = %s", key)
    claims = deployment.count(
        "select count(*) from claims c join allocations a on a.id = c.owner_id where a.operation_key = %s", key
    )
    assert rows == claims == deployment.events("provisioning.requested", key)
    return rows


WRITES = {
    "create": Write(_create, _created, lambda made: made.status == "requested"),
    "release": Write(
        _release,
        lambda deployment, key: deployment.events("provisioning.releasing.requested", key),
        lambda found: found.status == "releasing",
    ),
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "awaiting"])
@pytest.mark.parametrize("verb", WRITES)
def test_a_write_cut_once_is_done_once(deployment: Deployment, verb: str, asynchronous: bool) -> None:
    tenant, write = new_client_tenant(deployment, asynchronous), WRITES[verb]
    for cut in CUTS:
        do = write.prepare(tenant)
        with deployment.proxy.cutting(cut) as plan:
            result = do()
        assert write.is_result(result), cut
        assert plan.made == [cut]
        key = _only(plan.keys)
        assert len(plan.keys) == (1 if cut.place is Place.AFTER else 2), cut
        assert write.effects(deployment, key) == 1, cut


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "awaiting"])
@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("place", [place for place in Place if place is not Place.AFTER], ids=lambda p: p.name.lower())
def test_a_write_cut_every_time_is_settled_by_its_key(
    deployment: Deployment, verb: str, place: Place, asynchronous: bool
) -> None:
    tenant, write = new_client_tenant(deployment, asynchronous), WRITES[verb]
    do = write.prepare(tenant)
    failed: berth.Unavailable | None = None
    with deployment.proxy.cutting(Cut(place), times=ALWAYS) as plan:
        try:
            assert write.is_result(do(retry_seconds=SHORT_SECONDS))
        except berth.Unavailable as error:
            failed = error
    key = _only(plan.keys)
    assert len(plan.keys) > 1
    if place is not Place.AFTER_REQUEST:
        assert (failed is None) == (place not in NEVER_ARRIVES)
    if failed is not None:
        assert (failed.outcome, "will not be under this key" in failed.detail) == ("not_done", True)
        with pytest.raises(berth.OperationFenced):
            do(idempotency_key=key)
    assert write.effects(deployment, key) == (failed is None)


def _only(keys: list[str | None]) -> str:
    """The one key of all attempts."""
    (key,) = set(keys)
    assert key is not None
    assert berth.parse_key(key) is not None
    return key
