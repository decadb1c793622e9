"""An IPv6 network counts as one source in every bound of a source: its holder has all of its addresses."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from berth.process.limits.source_addresses import source_key
from orchestrator.edge.connection_counts import ConnectionCounts
from orchestrator.edge.handshakes import HandshakeTurns
from orchestrator.http.failed_attempts import FailedAttempts
from orchestrator.problems import TooManyFailures
from tests.support.waiting import let_others_run

NETWORK, OTHER = "2001:db8:0:1:", "2001:db8:0:2:"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0:1::5", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff::", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("spiffe://berth.local/node/1", "spiffe://berth.local/node/1"),
    ],
)
def test_the_key_of_a_source(address: str, key: str) -> None:
    assert source_key(address) == key


def test_connections_are_counted_by_network() -> None:
    counts = ConnectionCounts(100, 3)
    ends = [counts.add(f"{NETWORK}:{number:x}") for number in range(5)]
    assert [end is None for end in ends] == [False] * 3 + [True] * 2
    assert counts.add(f"{OTHER}:1") is not None
    assert ends[0] is not None
    ends[0]()
    assert counts.add(f"{NETWORK}:9") is not None, "a connection that ended counts no longer"


def test_a_proxy_in_an_ipv6_network_has_no_bound_of_its_source() -> None:
    counts = ConnectionCounts(100, 1, is_shared=lambda address: address == f"{NETWORK}:1")
    assert all(counts.add(f"{NETWORK}:1") is not None for _ in range(5))
    assert counts.add(f"{NETWORK}:2") is None, "its neighbours are counted with it"


def test_handshakes_take_turns_by_network() -> None:
    async def scene() -> None:
        turns = HandshakeTurns()
        given: list[str] = []

        async def begin(source: str) -> None:
            await turns.wait(source)
            given.append(source[: len(NETWORK)])

        flood = [asyncio.create_task(begin(f"{NETWORK}:{number:x}")) for number in range(500)]
        await let_others_run()
        await begin(f"{OTHER}:1")
        assert Counter(given)[NETWORK] <= 6, "its turn comes next, before the 500 of the other network"
        await asyncio.gather(*flood)
        turns.slow_down(f"{NETWORK}:1")
        assert turns.is_slow(f"{NETWORK}:2")
        assert not turns.is_slow(f"{OTHER}:1")

    asyncio.run(scene())


def test_failed_attempts_are_counted_by_network() -> None:
    async def scene() -> None:
        failed = FailedAttempts(2, 0.001)
        for number in range(2):
            assert await failed.begin(f"{NETWORK}:{number}", b"wrong%d" % number)
            failed.end(f"{NETWORK}:{number}", is_wrong=True)
        with pytest.raises(TooManyFailures):
            await failed.begin(f"{NETWORK}:9", b"another")
        assert await failed.begin(f"{OTHER}:1", b"another")

    asyncio.run(scene())
