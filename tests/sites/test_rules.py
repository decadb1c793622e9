"""Leases, sealed passwords and admission, without processes."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from berth.process.sealed_passwords import Purpose, SealBroken, new_password, seal, seal_to_all, unseal
from node_agent.redfish.contract import PowerState, SystemDescription
from node_agent.site.bmcs import GuardedTransport
from node_agent.site.descriptions import INVENTORY_BYTES_MAX, inventory_of
from node_agent.site.lease import Lease, LeaseEnded
from orchestrator.nodes.store.holders import Holder
from orchestrator.sites import rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B, RUN, OTHER_RUN = (uuid.UUID(int=number) for number in range(1, 5))


def test_a_sealed_password_opens_for_its_recipient_and_purpose_alone() -> None:
    key, site, node, recipient = X25519PrivateKey.generate(), *(uuid.uuid4() for _ in range(3))
    public = key.public_key().public_bytes_raw()
    purpose = Purpose(site, node, 3)
    text = seal("secret", purpose, recipient, public)
    assert unseal(text, purpose, recipient, key) == "secret"
    assert seal("secret", purpose, recipient, public) != text, "each copy has its own key"
    for other in (Purpose(node, node, 3), Purpose(site, site, 3), Purpose(site, node, 4)):
        with pytest.raises(SealBroken):
            unseal(text, other, recipient, key)
    with pytest.raises(SealBroken):
        unseal(text, purpose, uuid.uuid4(), key)
    with pytest.raises(SealBroken):
        unseal(text, purpose, recipient, X25519PrivateKey.generate())
    for broken in ("", "berth-bmc-2." + text.partition(".")[2], text[:-3], text + "AAAA", "berth-bmc-1.@@"):
        with pytest.raises(SealBroken) as error:
            unseal(broken, purpose, recipient, key)
        assert "secret" not in str(error.value)


@pytest.mark.parametrize("password", ["", "x" * 129])
def test_a_password_of_no_or_too_many_bytes_is_not_sealed(password: str) -> None:
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    with pytest.raises(ValueError, match="1 to 128 bytes"):
        seal_to_all(password, Purpose(A, B, 1), {A: public})


def test_a_new_password_suits_bmcs() -> None:
    made = {new_password() for _ in range(50)}
    assert len(made) == 50
    assert all(len(one) == 16 and one.isalnum() and one.isascii() for one in made)
    assert all(
        any(c.islower() for c in one) and any(c.isupper() for c in one) and any(c.isdigit() for c in one)
        for one in made
    )


def test_one_process_holds_the_lease_until_it_ends() -> None:
    held = rules.Lease(7, A, RUN, NOW + timedelta(seconds=1))
    assert rules.may_hold(held, A, RUN, NOW)
    assert not rules.may_hold(held, B, OTHER_RUN, NOW)
    assert not rules.may_hold(held, A, OTHER_RUN, NOW), "a copy of the agent is another process"
    assert rules.may_hold(held, B, OTHER_RUN, NOW + timedelta(seconds=1))
    assert rules.may_hold(rules.Lease(0, None, None, None), B, RUN, NOW)


def test_a_password_is_sealed_to_the_sender_the_recovery_key_and_agents_of_the_site_alone() -> None:
    site, stranger = uuid.uuid4(), uuid.uuid4()
    assert rules.is_sealed_enough({site, A}, site, A, {A, B})
    assert rules.is_sealed_enough({site, A, B}, site, A, {A, B})
    for recipients in ({A, B}, {site, B}, {site, A, stranger}, set[uuid.UUID]()):
        assert not rules.is_sealed_enough(recipients, site, A, {A, B})


def test_silence_is_unknown_only_after_a_task_was_handed_out() -> None:
    assert rules.verdict_of_silence(issued=False, dispatched=False)[0] == "failed"
    assert rules.verdict_of_silence(issued=True, dispatched=False)[0] == "failed"
    assert rules.verdict_of_silence(issued=True, dispatched=True)[0] == "unknown"
    assert rules.next_generation(3, None) == 4
    assert rules.next_generation(3, 4) == 5


def test_a_lease_ends_by_the_holders_own_clock() -> None:
    now = [100.0]
    lease = Lease(lambda: now[0])
    with pytest.raises(LeaseEnded):
        lease.require(0)
    lease.grant(4, 20.0, asked_at=95.0)
    lease.require(4)
    with pytest.raises(LeaseEnded):
        lease.require(3)
    now[0] = 115.0
    with pytest.raises(LeaseEnded):
        lease.require(4)
    lease.grant(4, 20.0, asked_at=115.0)
    lease.drop()
    with pytest.raises(LeaseEnded):
        lease.require(4)


def test_no_request_reaches_a_bmc_after_the_lease() -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.method)
        return httpx.Response(200)

    lease = Lease(lambda: 0.0)
    lease.grant(1, 5.0, asked_at=0.0)

    async def scene() -> None:
        transport = GuardedTransport(httpx.MockTransport(answer), lambda: lease.require(1))
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get("https://bmc/")
            lease.drop()
            with pytest.raises(LeaseEnded):
                await client.patch("https://bmc/")

    asyncio.run(scene())
    assert sent == ["GET"]


def test_statements_of_nodes_become_statements_of_agents() -> None:
    statement = (
        "select n.id, c.node_epoch from node_certificates c join nodes n on n.id = c.node_id where c.node_id = :node_id"
    )
    assert Holder.NODE.sql(statement) == statement
    assert Holder.SITE_AGENT.sql(statement) == (
        "select n.id, c.agent_epoch from site_agent_certificates c join site_agents n on n.id = c.agent_id"
        " where c.agent_id = :node_id"
    )


def test_what_a_bmc_reports_is_bounded_and_printable() -> None:
    from node_agent.redfish.contract import FirmwareItem

    firmware = tuple(FirmwareItem(str(n), "n" * 300, "v\x00\x1b[1m", True) for n in range(500))
    found = SystemDescription(
        "1", "m\ud800", "x" * 1000, "s", "u", "b", PowerState.ON, -1, "p", 2**60, (), (), firmware, None, ()
    )
    made = inventory_of(found)
    assert made.cut
    assert len(made.model_dump_json()) <= INVENTORY_BYTES_MAX
    assert (made.processors, made.memory_bytes, made.manufacturer, len(made.model)) == (None, None, "m ", 200)
    assert made.firmware[0].version == "v  [1m"


def test_an_inventory_of_a_bmc_that_reports_little_is_read_as_it_was_sent() -> None:
    """Agents send no nulls."""
    from node_agent.redfish.contract import Disk, Nic
    from node_agent.wire.sites import BmcInventory

    nics, disks = (Nic("1", "02:00:00:00:00:01", None),), (Disk("d", "m", "s", None, ""),)
    found = SystemDescription("1", "", "", "", "", "", PowerState.OFF, None, "", None, nics, disks, (), None, ())
    made = inventory_of(found)
    assert BmcInventory.model_validate_json(made.model_dump_json(exclude_none=True)) == made
