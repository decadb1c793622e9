"""Each verb of the public API while no standby confirms, with production's deadline: a named refusal, and done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.calling import at_once, problem
from tests.api.processes import public_process
from tests.database.unconfirmed.scene import VERBS, kill_standbys, prepared, replicated, return_standbys

Answers = dict[str, tuple[httpx.Response, int, httpx.Response, httpx.Response, int]]


@pytest.fixture(scope="module")
def answers(server_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """Of each verb: its answer while no standby confirms, how often it is visible then, two answers to its repetition after
    a standby is back, and how often it was done.
    """
    with (
        replicated(server_directory) as cluster,
        public_process(cluster.a.url(), tmp_path_factory.mktemp("verbs")) as http,
    ):
        acts = prepared(http, cluster)
        kill_standbys(cluster)
        first = at_once(*(acts[verb].send for verb in VERBS))
        seen = [acts[verb].times_done(cluster.a) for verb in VERBS]
        return_standbys(cluster)
        again, more = ([acts[verb].send() for verb in VERBS] for _ in range(2))
        done = [acts[verb].times_done(cluster.a) for verb in VERBS]
        assert [answer.status_code for answer in again] == [acts[verb].status for verb in VERBS]
        yield dict(zip(VERBS, zip(first, seen, again, more, done, strict=True), strict=True))


# With the deadline of production, 13 s. test_cancelled_waits.py has the verbs with a shorter one.
@pytest.mark.full
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_no_standby_confirms_is_an_unknown_outcome_and_is_done_once(answers: Answers, verb: str) -> None:
    first, seen, again, more, done = answers[verb]
    assert problem(first, 503, "outcome_unknown")["outcome"] == "unknown"
    assert seen == 0, "no other session sees what no standby has"
    assert again.headers["idempotent-replayed"] == more.headers["idempotent-replayed"] == "true"
    assert again.json() == more.json()
    assert done == 1
