"""Writes on webhooks, balances and SSH keys: their content, their key, and what their responses say to their owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel

from berth.client import AsyncClient, Payment, Replayed, SshKey, Webhook
from tests.campaign.clients.reading import Empty
from tests.campaign.clients.writes import Write
from tests.campaign.history import WriteKind

Note = Callable[[Webhook], None]


def create_hook(key: str, url: str, types: Sequence[str], signing: Literal["hmac", "ed25519"], note: Note) -> Write:
    """A webhook; `note` gets each response."""

    async def send(client: AsyncClient, key: str) -> Webhook:
        made = await client.create_webhook(url=url, types=types, signing=signing, idempotency_key=key)
        note(made)
        return made

    return Write("hook", key, f"hook {url} {sorted(types)} {signing}", send)


def set_hook_state(key: str, webhook_id: UUID, state: Literal["enabled", "disabled"], note: Note) -> Write:
    """Enable or disable a webhook; `note` gets each response."""

    async def send(client: AsyncClient, key: str) -> Webhook:
        changed = await client.change_webhook(webhook_id, state=state, idempotency_key=key)
        note(changed)
        return changed

    return Write("hook_change", key, f"{state} {webhook_id}", send)


def rotate_hook(key: str, webhook_id: UUID, overlap_seconds: int, note: Note) -> Write:
    """A new signing key; `note` gets each response."""

    async def send(client: AsyncClient, key: str) -> Webhook:
        rotated = await client.rotate_webhook(webhook_id, overlap_seconds=overlap_seconds, idempotency_key=key)
        note(rotated)
        return rotated

    return Write("hook_rotate", key, f"rotate {webhook_id} {overlap_seconds}", send)


def delete_hook(key: str, webhook_id: UUID) -> Write:
    """The end of a webhook."""

    async def send(client: AsyncClient, key: str) -> Empty:
        await client.delete_webhook(webhook_id, idempotency_key=key)
        return Empty(None)

    return Write("hook_delete", key, f"delete hook {webhook_id}", send)


def replay_failed(key: str, webhook_id: UUID, since: datetime) -> Write:
    """Every failed delivery since a time again."""

    async def send(client: AsyncClient, key: str) -> Replayed:
        return await client.replay_failed_deliveries(webhook_id, since=since, idempotency_key=key)

    return Write("hook_replay", key, f"replay {webhook_id} {since}", send)


def top_up(key: str, tenant_id: UUID, amount: int) -> Write:
    """An amount for a tenant's balance."""
    return _payment("top_up", key, tenant_id, amount)


def withdraw(key: str, tenant_id: UUID, amount: int) -> Write:
    """An amount out of a tenant's balance."""
    return _payment("withdraw", key, tenant_id, amount)


def _payment(kind: WriteKind, key: str, tenant_id: UUID, amount: int) -> Write:
    async def send(client: AsyncClient, key: str) -> Payment:
        pay = client.top_up_balance if kind == "top_up" else client.withdraw_from_balance
        return await pay(tenant_id, amount_micro_units=amount, reference="campaign", idempotency_key=key)

    return Write(kind, key, f"{kind} {tenant_id} {amount}", send)


def add_key(key: str, public_key: str, note: Callable[[SshKey], None]) -> Write:
    """An SSH key; `note` gets each response."""

    async def send(client: AsyncClient, key: str) -> SshKey:
        made = await client.add_ssh_key(name=f"campaign {key}", public_key=public_key, idempotency_key=key)
        note(made)
        return made

    return Write("key_add", key, f"add {public_key}", send)


def remove_key(key: str, key_id: UUID) -> Write:
    """The end of an SSH key."""

    async def send(client: AsyncClient, key: str) -> BaseModel:
        await client.remove_ssh_key(key_id, idempotency_key=key)
        return Empty(None)

    return Write("key_remove", key, f"remove key {key_id}", send)
