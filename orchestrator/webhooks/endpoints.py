"""`/api/v1/webhooks`: a tenant's webhooks receive its events; the operators' receive all events (docs/reference/webhooks.md)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, bounded_integer, identified_page, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.http.writes import AnyWrite, Write, unsealed_response
from orchestrator.operations.store.operations import Answer
from orchestrator.settings import Settings
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, OPERATOR_ADMINS, TENANT_ADMINS, TENANT_READERS
from orchestrator.webhooks import queries as webhooks
from orchestrator.webhooks import schemas
from orchestrator.webhooks.addresses import is_private_host, read_webhook_url
from orchestrator.webhooks.commands.replay import replay_delivery, replay_failed_deliveries, send_test_message
from orchestrator.webhooks.commands.webhooks import change_webhook, create_webhook, delete_webhook, rotate_webhook
from orchestrator.webhooks.keys import WebhookKeys
from orchestrator.webhooks.rules import WebhooksUnavailable, WebhookUrlRefused
from orchestrator.webhooks.signatures import Signing

router = APIRouter(prefix="/webhooks", tags=["webhooks"], responses=PROBLEM_RESPONSES)
NUMBER_MAX = 2**63 - 1
Number = Annotated[int, Path(ge=1, le=NUMBER_MAX)]


@router.post("", status_code=201, response_model=schemas.WebhookWithSecret)
@requires(tenant=TENANT_ADMINS, operator=OPERATOR_ADMINS)
async def create_one(body: schemas.CreateWebhook, write: AnyWrite) -> Response:
    """Send events from now on to a URL. The secret is returned only in this response and its replays to the same caller."""
    settings = write.parts.settings
    require_sendable(settings, body.url)
    answer = await create_webhook(
        write.context,
        write.operation(body),
        write.caller,
        write.sealer(),
        keys_of(write),
        url=body.url,
        description=body.description,
        types=body.types,
        signing=Signing(body.signing),
        versions_max=settings.webhook_retention_versions_max,
        webhooks_max=settings.webhooks_max,
    )
    return secret_response(write, answer)


@router.get("", response_model=Page[schemas.Webhook])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """List the caller's webhooks, without their secrets."""
    after, limit = identified_page(query, "webhooks")
    found = await webhooks.list_webhooks(parts.context.database, caller.tenant_id, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "webhooks", lambda webhook: webhook.id))


@router.get("/{webhook_id}", response_model=schemas.Webhook)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def get_one(webhook_id: UUID, caller: Caller, parts: Parts) -> Response:
    """Return one webhook."""
    return json_response(await webhooks.find_webhook(parts.context.database, caller.tenant_id, webhook_id))


@router.patch("/{webhook_id}", response_model=schemas.Webhook)
@requires(tenant=TENANT_ADMINS, operator=OPERATOR_ADMINS)
async def change_one(webhook_id: UUID, body: schemas.ChangeWebhook, write: AnyWrite) -> Response:
    """Change, disable or enable a webhook. Once enabled again, it receives events from then on."""
    if body.url is not None:
        require_sendable(write.parts.settings, body.url)
    answer = await change_webhook(
        write.context,
        write.operation(body),
        write.caller,
        webhook_id,
        url=body.url,
        description=body.description,
        types=body.types,
        state=body.state,
    )
    return answer_response(answer)


@router.delete("/{webhook_id}", status_code=204)
@requires(tenant=TENANT_ADMINS, operator=OPERATOR_ADMINS)
async def delete_one(webhook_id: UUID, write: AnyWrite) -> Response:
    """Delete a webhook; nothing more is sent to it."""
    return answer_response(await delete_webhook(write.context, write.operation(), write.caller, webhook_id))


@router.post("/{webhook_id}/rotate", response_model=schemas.WebhookWithSecret)
@requires(tenant=TENANT_ADMINS, operator=OPERATOR_ADMINS)
async def rotate(webhook_id: UUID, write: AnyWrite, body: schemas.RotateWebhook | None = None) -> Response:
    """Sign with a new key. Older keys sign as well until the overlap is over, so that receivers can change over."""
    rotation = body or schemas.RotateWebhook()
    answer = await rotate_webhook(
        write.context,
        write.operation(rotation),
        write.caller,
        write.sealer(),
        keys_of(write),
        webhook_id,
        overlap_seconds=rotation.overlap_seconds,
    )
    return secret_response(write, answer)


@router.post("/{webhook_id}/test", status_code=202, response_model=schemas.Delivery)
@requires(tenant=TENANT_ADMINS, operator=OPERATOR_ADMINS)
async def send_test(webhook_id: UUID, write: AnyWrite, body: Nothing | None = None) -> Response:
    """Send a test message, which is no event; its outcome is listed with the deliveries."""
    return answer_response(
        await send_test_message(
            write.context, write.operation(), write.caller, webhook_id, pending_max=pending_max(write)
        )
    )


@router.post("/{webhook_id}/replay", status_code=202, response_model=schemas.ReplayCounts)
@requires(tenant=TENANT_ADMINS, operator=OPERATOR_ADMINS)
async def replay_failed(webhook_id: UUID, body: schemas.ReplayDeliveries, write: AnyWrite) -> Response:
    """Send the deliveries that failed since a time again."""
    return answer_response(
        await replay_failed_deliveries(
            write.context, write.operation(body), write.caller, webhook_id, body.since, pending_max=pending_max(write)
        )
    )


@router.get("/{webhook_id}/deliveries", response_model=Page[schemas.Delivery])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_deliveries(
    webhook_id: UUID, query: Annotated[schemas.DeliveryQuery, Query()], caller: Caller, parts: Parts
) -> Response:
    """List deliveries and their outcomes, newest first."""
    before = place_after(query.cursor, "deliveries", bounded_integer, NUMBER_MAX)
    found = await webhooks.list_deliveries(
        parts.context.database, caller.tenant_id, webhook_id, state=query.state, before=before, limit=query.limit + 1
    )
    return json_response(page_of(found, query.limit, "deliveries", lambda delivery: delivery.number))


@router.get("/{webhook_id}/deliveries/{number}", response_model=schemas.Delivery)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def find_delivery(webhook_id: UUID, number: Number, caller: Caller, parts: Parts) -> Response:
    """Return one delivery."""
    return json_response(await webhooks.find_delivery(parts.context.database, caller.tenant_id, webhook_id, number))


@router.post("/{webhook_id}/deliveries/{number}/replay", status_code=202, response_model=schemas.Delivery)
@requires(tenant=TENANT_ADMINS, operator=OPERATOR_ADMINS)
async def replay(webhook_id: UUID, number: Number, write: AnyWrite, body: Nothing | None = None) -> Response:
    """Send one delivery again, at once."""
    return answer_response(
        await replay_delivery(
            write.context, write.operation(), write.caller, webhook_id, number, pending_max=pending_max(write)
        )
    )


def require_sendable(settings: Settings, url: str) -> None:
    """Check a URL against the deployment's rules without resolving its host, which happens at each attempt.

    Raises `WebhookUrlRefused`.
    """
    parts = read_webhook_url(url)
    if parts.scheme == "http" and not settings.webhook_http_allowed:
        raise WebhookUrlRefused("this deployment sends webhooks only to https:// URLs; use one", reason="http")
    if is_private_host(parts.host) and not settings.webhook_private_addresses_allowed:
        raise WebhookUrlRefused(
            f"{parts.host} is not a host of the public internet; use one that is", reason="private_address"
        )
    if settings.webhook_ports and parts.port not in settings.webhook_ports:
        allowed = ", ".join(map(str, settings.webhook_ports))
        raise WebhookUrlRefused(f"this deployment sends webhooks only to port {allowed}; use one", reason="port")


def keys_of(write: Write) -> WebhookKeys:
    """Return the cipher of webhook keys. Raises `WebhooksUnavailable`."""
    if write.parts.webhook_keys is None:
        raise WebhooksUnavailable("this process has no key for webhooks; the operator sets BERTH_WEBHOOK_KEY_FILE")
    return write.parts.webhook_keys


def pending_max(write: Write) -> int:
    """Return the bound on pending deliveries of a webhook."""
    return write.parts.settings.webhook_pending_max


def secret_response(write: Write, answer: Answer) -> Response:
    """Return the response, with its secret (if any) in the clear."""
    if answer.status < 400 and "secret" in orjson.loads(answer.body):
        return unsealed_response(write, answer, "secret")
    return answer_response(answer)
