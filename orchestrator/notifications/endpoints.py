"""`GET /api/v1/notifications`: a WebSocket that delivers events as they commit (docs/reference/notifications.md).

The Origin header is not checked: Berth uses no cookies, so a browser adds no credential by itself, and a page that has a key
may use it from any origin.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, NoReturn

from fastapi import APIRouter, Path, Query, WebSocket
from fastapi.responses import Response
from pydantic import ValidationError

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller, principal_behind, require_unchanged
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, named_page, page_of
from orchestrator.http.problem_documents import REFUSAL, invalid_from
from orchestrator.http.rate_limits import RequestClass
from orchestrator.http.services import CALLER, Parts, Services, services_for, source_of
from orchestrator.http.sockets.credentials import credential_of
from orchestrator.http.sockets.upgrades import UpgradeRequired
from orchestrator.http.writes import AnyWrite
from orchestrator.log.feed.frames import Audience
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.feed_endpoints import chosen_events, require_kept, streams_max
from orchestrator.log.namespaces import namespace_of
from orchestrator.log.refusals import LeaderUnaccepted, VersionInFuture
from orchestrator.notifications import messages
from orchestrator.notifications.commands import open_subscription, remove_subscription
from orchestrator.notifications.queries import list_subscriptions
from orchestrator.notifications.schemas import SUBSCRIPTION_PATTERN, NotificationSubscription, SocketQuery
from orchestrator.notifications.sockets import NotificationSocket, SubscriptionKey
from orchestrator.problems import Problem
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.required_roles import check_roles, requires, without_roles
from orchestrator.tenants.roles import EVERY_OPERATOR, OPERATOR_ADMINS, TENANT_READERS, TENANT_WRITERS

router = APIRouter(prefix="/api/v1/notifications", tags=["log"], responses=PROBLEM_RESPONSES)
SubscriptionPath = Annotated[str, Path(pattern=SUBSCRIPTION_PATTERN)]
REPEATABLE = frozenset({"types", "subject"})


@router.get("", include_in_schema=False, response_model=None)
@without_roles
async def plain() -> NoReturn:
    """Refuse a request without an upgrade."""
    raise UpgradeRequired("this path requires a WebSocket (RFC 6455); send `Upgrade: websocket`, version 13")


@router.get("/subscriptions", response_model=Page[NotificationSubscription])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_all_subscriptions(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """List the named subscriptions of the tenant, or of the operators, by name."""
    after, limit = named_page(query, "subscriptions")
    found = await list_subscriptions(parts.context.database, namespace_of(caller), after=after, limit=limit)
    return json_response(page_of(found, query.limit, "subscriptions", lambda subscription: subscription.name))


@router.delete("/subscriptions/{name}", status_code=204)
@requires(tenant=TENANT_WRITERS, operator=OPERATOR_ADMINS)
async def delete_subscription(name: SubscriptionPath, write: AnyWrite) -> Response:
    """Delete a subscription; it no longer keeps the log."""
    scope = namespace_of(write.caller)
    return answer_response(await remove_subscription(write.context, write.operation(), write.caller, scope, name))


@router.websocket("")
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def notifications(socket: WebSocket) -> None:
    """Deliver events and receive acknowledgements.

    A refusal is an HTTP response. With a credential in a subprotocol it is the first message of an accepted socket, which is
    then closed, because a browser does not show its page why an upgrade was refused.
    """
    parts: Services = socket.app.state.services
    credential, spoken = credential_of(socket, messages.PROTOCOL)
    try:
        bearer = credential or socket.headers.get("authorization", "")
        caller = await principal_behind(parts.credentials, parts.context.database, bearer, source_of(socket.scope))
        socket.scope.setdefault("state", {})[CALLER] = caller
        parts = services_for(parts, socket.scope)
        parts.limits.take_rate(caller.scope, RequestClass.STREAM)
        check_roles(notifications, caller)
        query = _query_of(socket)
        # A named one is created if it does not exist, and acknowledgements move it.
        needed = (notifications,) if query.subscription is None else (notifications, delete_subscription)
        for endpoint in needed:
            check_roles(endpoint, caller)
        async with parts.feed.admit(caller.tenant_id, await streams_max(parts, caller.tenant_id)):
            subscriber, subscription = await _open(socket, parts, caller, query)
            await parts.feed.start()
            await socket.accept(spoken)
            served = NotificationSocket(
                socket,
                parts.feed,
                subscriber,
                parts.acknowledging,
                lambda: require_unchanged(parts, bearer, caller, *needed),
                parts.settings.socket_limits(),
                subscription,
            )
            await served.serve()
    except Problem as refusal:
        if credential is None:
            raise
        socket.scope.setdefault("state", {})[REFUSAL] = refusal
        await socket.accept(spoken)
        await socket.send_text(messages.error(refusal))
        await socket.close(messages.closing_code(refusal), refusal.code)


async def _open(
    socket: WebSocket, parts: Services, caller: Principal, query: SocketQuery
) -> tuple[Subscriber, SubscriptionKey | None]:
    """Create the subscriber at its subscription's offset, else after the requested version, else at the head.

    Raises `VersionInFuture`, `LogTruncated`, `LeaderUnaccepted`, `QuotaExceeded`, `Invalid`.
    """
    audience = Audience(caller.tenant_id, chosen_events(query.types, query.subject), durable=False, on_socket=True)
    head = await parts.log_head.fresh()
    if not head.is_accepted:
        raise LeaderUnaccepted(
            "the log was written under another PostgreSQL timeline, and versions may still change; retry when an operator has"
            " accepted this one"
        )
    after = head.version if query.after is None else query.after
    if after > head.version:
        raise VersionInFuture(f"version {after} does not exist; the log ends at {head.version}", version=head.version)
    subscription = None
    if query.subscription is not None:
        subscription = SubscriptionKey(namespace_of(caller), query.subscription)
        after = await open_subscription(
            parts.context,
            subscription.scope,
            subscription.name,
            after,
            caller=caller,
            request_id=socket.scope["state"].get("request_id"),
            retention=parts.settings.subscription_retention(),
            subscriptions_max=parts.settings.notifications_subscriptions_max,
        )
    else:
        await require_kept(parts, after, caller.tenant_id, head.version)
    cut = socket.scope["state"].get("abort", lambda: None)
    return Subscriber(audience, after, head.leader_id, parts.feed.limits.buffer_bytes_max, cut), subscription


def _query_of(socket: WebSocket) -> SocketQuery:
    """Parse the query. Raises `Invalid` for invalid values and unknown parameters."""
    given: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in socket.query_params.multi_items():
        given[name].append(value)
    values = {name: each if name in REPEATABLE or len(each) > 1 else each[0] for name, each in given.items()}
    try:
        return SocketQuery.model_validate(values)
    except ValidationError as error:
        raise invalid_from([{**found, "loc": ("query", *found["loc"])} for found in error.errors()]) from None
