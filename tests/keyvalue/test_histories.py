"""Many commits at once, from two applications over one database: their histories are strictly serialisable."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from orchestrator.app import build_services, public_listener
from tests.api.calling import at_once, new_tenant
from tests.keyvalue.committing import Keys, clear, delete, put, unchanged, unchanged_range
from tests.keyvalue.model import Model, RecordedCommit, judge, raw
from tests.support.public_api import PublicApi, settings_over

NAMES = [b"a", b"a\0", b"b", b"c", b"\xff"]
BOUNDS = [b"", *NAMES, b"\xff\xff"]


@pytest.fixture(scope="module")
def doors(api: PublicApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Two applications over one database."""
    info = api.database.info
    url = f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}"
    services = build_services(settings_over(url, tmp_path_factory.mktemp("second")))
    with TestClient(public_listener(services), raise_server_exceptions=False) as second:
        yield [api.admin.http, second]
        assert second.portal is not None
        second.portal.call(services.context.database.close)


def send(keys: Keys, body: dict[str, Any]) -> RecordedCommit:
    """Commit, and note what was seen."""
    began = time.monotonic()
    answer = keys.try_commit(**body)
    ended = time.monotonic()
    assert answer.status_code == 200, answer.text
    return RecordedCommit(body, answer.json(), began, ended)


names = st.sampled_from(NAMES)
ranges = st.tuples(st.sampled_from(BOUNDS), st.sampled_from(BOUNDS)).filter(lambda pair: pair[0] < pair[1])
operations = st.one_of(
    st.builds(put, names, st.binary(max_size=3)), st.builds(delete, names), ranges.map(lambda pair: clear(*pair))
)
reads = st.one_of(names.map(unchanged), ranges.map(lambda pair: unchanged_range(*pair)))
commits = st.fixed_dictionaries(
    {
        "operations": st.lists(operations, max_size=4),
        # How many versions ago each was read, of those known.
        "reads": st.lists(st.tuples(reads, st.integers(0, 3)), max_size=3),
    }
)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(commits, min_size=1, max_size=4), min_size=1, max_size=5))
def test_every_commit_is_answered_as_the_model_says(
    api: PublicApi, doors: list[Any], groups: list[list[dict[str, Any]]]
) -> None:
    tenant = new_tenant(api.admin)
    callers = [Keys(replace(tenant, http=http)) for http in doors]
    response_versions = [0, callers[0].version()]
    history: list[RecordedCommit] = []
    for group in groups:
        bodies = [
            {
                "operations": one["operations"],
                "preconditions": [
                    {**read, "version": response_versions[-1 - ago % len(response_versions)]}
                    for read, ago in one["reads"]
                ],
            }
            for one in group
        ]
        history += at_once(*[lambda n=n, body=body: send(callers[n % 2], body) for n, body in enumerate(bodies)])
        response_versions = sorted({*response_versions, *(told.answer["version"] for told in history)})
    model = Model()
    judge(history, model)
    assert callers[0].every()[0] == model.values


def live(keys: Keys, seed: int, rounds: int) -> list[RecordedCommit]:
    """A client that writes values derived from its reads, to keys that no other client writes."""
    chance = random.Random(seed)
    history = []
    for number in range(rounds):
        preconditions = []
        if chance.random() < 0.3:
            page = keys.range(begin="YQ", end="Yw")
            preconditions.append(unchanged_range(b"a", b"c", page["read_version"]))
        else:
            for name in chance.sample(NAMES, 2):
                answer = keys.find(name).json()
                preconditions.append(unchanged(name, answer["read_version"]))
        name = chance.choice(NAMES)
        operation = chance.choice([put(name, b"%d-%d" % (seed, number)), delete(name), clear(b"a", b"b")])
        history.append(
            send(keys, {"operations": [operation, put(b"z%d" % seed, b"%d" % number)], "preconditions": preconditions})
        )
    return history


def live_through(api: PublicApi, doors: list[Any], seed: int) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """What the model says after six clients in one namespace, judged together; and what the log alone leads to."""
    tenant = new_tenant(api.admin)
    callers = [Keys(replace(tenant, http=doors[n % 2])) for n in range(6)]
    histories = at_once(*[lambda n=n, keys=keys: live(keys, seed + n, 12) for n, keys in enumerate(callers)])
    history = [told for one in histories for told in one]
    model = Model()
    judge(history, model)
    assert callers[0].every()[0] == model.values
    assert {told.answer["status"] for told in history} == {"committed", "not_committed"}
    replayed: dict[bytes, bytes] = {}
    rows = api.database.execute(
        "select payload -> 'operations' from log where tenant_id = %s and event_type = 'transaction' order by version",
        (tenant.tenant_id,),
    ).fetchall()
    replay = Model(replayed)
    for (told_operations,) in rows:
        replay.apply({"operations": told_operations}, 0)
    kept = api.database.execute(
        "select encode(key, 'base64') from kv_keys where namespace = %s and value is not null", (tenant.tenant_id,)
    ).fetchall()
    assert {raw(str(key)) for (key,) in kept} == set(model.values)
    return model.values, replayed


@pytest.mark.full
def test_clients_that_depend_on_what_they_read_are_serialised(api: PublicApi, doors: list[Any]) -> None:
    expected, replayed = live_through(api, doors, 1)
    assert replayed == expected


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 2_000, 100))
def test_they_always_are(api: PublicApi, doors: list[Any], seed: int) -> None:
    expected, replayed = live_through(api, doors, seed)
    assert replayed == expected
