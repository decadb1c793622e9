"""Keys and fingerprints: nothing in a body may be overlooked, nothing in a key may confuse (failures 4, 7, 22)."""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import RootModel

from orchestrator.http.operation_keys import operation_in, usable_key
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import OperationInProgress
from orchestrator.tenants.principals import Principal
from tests.placement.fleet import Fleet, create_all, create_of, working

CALLER = Principal("member", uuid.uuid4(), uuid.uuid4())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def fingerprint(content: Any, method: str = "POST", path: str = "/api/v1/allocations") -> bytes:
    """The fingerprint that a request with this body gets."""
    scope = {"method": method, "path": path, "query_string": b"", "state": {"request_id": "r"}}
    return operation_in(scope, CALLER, "k", RootModel[Any](content), 60.0).fingerprint


@given(JSON, JSON)
def test_a_body_that_differs_only_deep_inside_is_another_operation(one: Any, other: Any) -> None:
    deep = [{"outer": {"inner": [value]}} for value in (one, other)]
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (fingerprint(deep[0]) == fingerprint(deep[1])) == same


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=5))
def test_the_order_of_members_means_nothing(body: dict[str, Any]) -> None:
    turned = dict(reversed(list(copy.deepcopy(body).items())))
    assert fingerprint(body) == fingerprint(turned)


def test_the_same_body_elsewhere_is_another_operation() -> None:
    assert len({fingerprint({}), fingerprint({}, path="/api/v1/ssh-keys"), fingerprint({}, method="PUT")}) == 3


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_a_key_may_contain_any_separator(key: str) -> None:
    quoted = len(key) >= 2 and key[0] == key[-1] == '"'
    if not (quoted and len(key) == 2):
        assert usable_key(key) == (key[1:-1] if quoted else key)


def test_keys_that_only_look_alike_are_distinguished(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    first, second = fleet.tenant(), fleet.tenant()
    keys = ["a:b", "a", "a b", f"{second.id} x", f"{first.id}:x"]
    creates = [create_of(tenant, key=key) for tenant in (first, second) for key in keys]

    async def send() -> list[Any]:
        async with working(database_url) as (context, catalogue):
            return list(await create_all(context, catalogue, creates))

    answers = asyncio.run(send())
    assert [answer.status for answer in answers] == [201] * len(creates)
    assert fleet.one("select count(distinct operation_key || tenant_id) from allocations") == len(creates)


def test_a_waiter_that_gives_up_runs_nothing(database_url: str) -> None:
    """The first attempt holds its key; the second waits, bounded, is answered in_progress, and never runs beside it."""
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant(), key="k")
    bystander = create_of(fleet.tenant())
    insert = (
        "insert into operations (scope, key, fingerprint, retire_after) values (%s, 'k', %s, now() + interval '1 hour')"
    )
    fleet.connection.execute("begin")
    fleet.connection.execute(insert, (create.tenant_id, create.operation.fingerprint))

    async def send() -> list[Any]:
        async with working(database_url, lock_timeout_seconds=0.3) as (context, catalogue):
            return list(await create_all(context, catalogue, [create, bystander]))

    waited, unharmed = asyncio.run(send())
    assert isinstance(waited, OperationInProgress)
    assert isinstance(unharmed, Answer)
    assert unharmed.status == 201
    fleet.connection.execute("rollback")
    assert fleet.one("select count(*) from allocations where operation_key = 'k'") == 0
