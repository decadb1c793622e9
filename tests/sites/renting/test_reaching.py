"""A machine is reached once its SSH server proves the expected host key: never by another one, never after the lease."""

from __future__ import annotations

import asyncio

import asyncssh
import pytest

from node_agent.drivers.ssh import NotReady, new_host_key
from node_agent.site import reaching
from node_agent.site.lease import LeaseEnded
from node_agent.site.problems import NotDone
from node_agent.site.reaching import MARGIN_SECONDS, reach
from node_agent.wire.sites import SshServer


def nothing() -> None:
    """The lease is held."""


async def served(private: bytes) -> asyncssh.SSHAcceptor:
    return await asyncssh.listen("127.0.0.1", 0, server_host_keys=[asyncssh.import_private_key(private)])


def server(port: int, host_key: str) -> SshServer:
    return SshServer.model_validate({"host": "127.0.0.1", "port": port, "host_key": host_key})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    monkeypatch.setattr(reaching, "PAUSE_SECONDS", 0.01)


def test_the_expected_host_key_is_a_proof_and_another_one_is_none() -> None:
    async def scene() -> None:
        (private, public), (_, other) = new_host_key(), new_host_key()
        machine = await served(private)
        await reach(server(machine.get_port(), public), MARGIN_SECONDS + 30, nothing)
        with pytest.raises(NotDone, match="it shows another host key") as refused:
            await reach(server(machine.get_port(), other), MARGIN_SECONDS + 0.3, nothing)
        assert refused.value.code == "not_reached"
        machine.close()

    asyncio.run(scene())


def test_a_machine_that_answers_later_is_reached() -> None:
    asked: list[str] = []

    async def check(host: str, port: int, host_key: str, seconds: float) -> str:
        asked.append(host)
        if len(asked) < 3:
            raise NotReady("it boots")
        return host_key

    asyncio.run(reach(server(22, new_host_key()[1]), MARGIN_SECONDS + 30, nothing, check))
    assert asked == ["127.0.0.1"] * 3


def test_nothing_is_reached_after_the_lease() -> None:
    async def check(*_: object) -> str:
        raise AssertionError("a request was sent")

    def over() -> None:
        raise LeaseEnded("it is over")

    with pytest.raises(LeaseEnded):
        asyncio.run(reach(server(22, new_host_key()[1]), MARGIN_SECONDS + 30, over, check))
