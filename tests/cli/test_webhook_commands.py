"""`berth webhook` and the client's calls of webhooks against a real API: what they print and how they end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from berth.client import AsyncClient, Client, InvalidState, NotFound, WebhookUrlRefused
from tests.api.calling import new_tenant
from tests.client.deployment import Deployment
from tests.support.shell import ID, Shell, bare, deployment

__all__ = ["bare", "deployment"]
URL = "https://hooks.example.com/berth"


def test_webhooks_from_the_command_line(deployment: Deployment) -> None:
    shell = Shell(deployment.address, new_tenant(deployment.admin).key)
    made = shell.json(f"webhook create {URL} --type 'provisioning.*' --type node.online --idempotency-key hook-1")
    assert made["types"] == ["provisioning.*", "node.online"]
    assert (
        shell.json(f"webhook create {URL} --type 'provisioning.*' --type node.online --idempotency-key hook-1") == made
    )
    assert made["secret"].startswith("whsec_")
    shown = shell.json(f"webhook show {made['id']}")
    assert shown["secret"] is None
    listed = shell.run("webhook list")
    assert made["id"] in listed.output
    assert "whsec_" not in listed.output
    rotated = shell.json(f"webhook rotate {made['id']} --overlap-seconds 60")
    assert rotated["secret"] != made["secret"]
    changed = shell.json(f"webhook change {made['id']} --all-types --disable --description paused")
    assert (changed["types"], changed["state"], changed["description"]) == ([], "disabled", "paused")
    shell.refused(f"webhook replay {made['id']} --since 2026-01-01T00:00:00Z", "invalid_state")
    assert shell.json(f"webhook change {made['id']} --enable")["state"] == "enabled"
    sent = shell.json(f"webhook test {made['id']}")
    assert sent["event_type"] == "webhook.test"
    assert [one["number"] for one in shell.json(f"webhook deliveries {made['id']} --state pending")["items"]] == [1]
    assert shell.json(f"webhook deliveries {made['id']} 1")["event_id"] == sent["event_id"]
    assert shell.json(f"webhook replay {made['id']} 1")["state"] == "pending"
    assert shell.json(f"webhook replay {made['id']} --since 2026-01-01T00:00:00Z")["replayed"] == 0
    assert shell.run(f"webhook replay {made['id']}").exit_code == 2
    assert shell.run(f"webhook change {made['id']} --all-types --type node.online").exit_code == 2
    shell.refused("webhook create https://127.0.0.1/", "webhook_url_refused")
    shell.refused(f"webhook show {ID}", "not_found")
    assert shell.run(f"webhook delete {made['id']}").exit_code == 0
    shell.refused(f"webhook delete {made['id']}", "not_found")


def test_webhooks_from_a_program(deployment: Deployment) -> None:
    key = new_tenant(deployment.admin).key
    with Client(deployment.address, key) as client:
        made = client.create_webhook(url=URL, signing="ed25519")
        assert made.secret is None
        assert len(client.rotate_webhook(made.id).public_keys) == 2
        with pytest.raises(WebhookUrlRefused) as refused:
            client.change_webhook(made.id, url="http://example.com/")
        assert refused.value.extra["reason"] == "http"
        sent = client.send_test_message(made.id)
        assert [one.number for one in client.iterate_deliveries(made.id)] == [sent.number]
        assert client.get_delivery(made.id, sent.number).history == []
        client.change_webhook(made.id, state="disabled")
        with pytest.raises(InvalidState):
            client.replay_failed_deliveries(made.id, since=datetime.now(UTC))
        client.delete_webhook(made.id)
        with pytest.raises(NotFound):
            client.get_webhook(made.id)

    async def listed() -> list[str]:
        async with AsyncClient(deployment.address, key) as client:
            await client.create_webhook(url=URL, types=["node.*"])
            return [webhook.url async for webhook in client.iterate_webhooks()]

    assert asyncio.run(listed()) == [URL]
