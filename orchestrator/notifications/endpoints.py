"""`GET /api/v1/notifications`: a WebSocket on which the events of the log come as they commit (docs/reference/notifications.md).

No Origin is looked at: a browser adds nothing of its own to a WebSocket that would let it in. There is no cookie, and a
page that knows a key may use it from wherever it comes.
"""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Path, WebSocket
from fastapi.responses import Response
from pydantic import ValidationError

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller, principal_behind
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.problem_documents import invalid_from
from orchestrator.http.services import Parts, Services
from orchestrator.http.writes import AnyWrite
from orchestrator.keyvalue.commit_endpoints import namespace_of
from orchestrator.keyvalue.rules import LeaderUnaccepted, VersionInFuture
from orchestrator.log.feed.frames import Audience
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.feed_endpoints import chosen_events, require_kept
from orchestrator.log.refusals import UpgradeRequired
from orchestrator.notifications import messages
from orchestrator.notifications.commands import open_subscription, remove_subscription
from orchestrator.notifications.queries import list_subscriptions
from orchestrator.notifications.schemas import SUBSCRIPTION_PATTERN, NotificationSubscription, Question
from orchestrator.notifications.sockets import NotificationSocket, Place
from orchestrator.problems import Malformed, Problem
from orchestrator.tenants.principals import Principal

router = APIRouter(prefix="/api/v1/notifications", tags=["log"], responses=PROBLEM_RESPONSES)
SubscriptionPath = Annotated[str, Path(pattern=SUBSCRIPTION_PATTERN)]
SEVERAL = frozenset({"types", "subject"})


@router.get("", include_in_schema=False, response_model=None)
async def plain() -> NoReturn:
    """For who asks without an upgrade."""
    raise UpgradeRequired("this path speaks WebSocket (RFC 6455): ask with `Upgrade: websocket`, version 13")


@router.get("/subscriptions", response_model=list[NotificationSubscription])
async def list_all(caller: Caller, parts: Parts) -> Response:
    """Every named subscription of the tenant, or of the operators, by name."""
    return json_response(await list_subscriptions(parts.context.database, namespace_of(caller)))


@router.delete("/subscriptions/{name}", status_code=204)
async def remove(name: SubscriptionPath, write: AnyWrite) -> Response:
    """Forget where a subscription was; it keeps nothing of the log any more."""
    scope = namespace_of(write.caller)
    return answer_response(await remove_subscription(write.context, write.operation(), write.caller, scope, name))


@router.websocket("")
async def notifications(socket: WebSocket) -> None:
    """Events out, acknowledgements in.

    A refusal is an HTTP answer, as everywhere, but for who brings its credential as a subprotocol: a browser tells its
    page nothing about a refused upgrade, so it is told in the first message, and the socket is closed.
    """
    parts: Services = socket.app.state.services
    credential, spoken = _offered(socket)
    try:
        bearer = credential or socket.headers.get("authorization", "")
        caller = await principal_behind(parts.credentials, parts.context.database, bearer)
        question = _question(socket)
        async with parts.feed.place(caller.tenant_id):
            subscriber, place = await _beginning(socket, parts, caller, question)
            await parts.feed.start()
            await socket.accept(spoken)
            served = NotificationSocket(
                socket,
                parts.feed,
                subscriber,
                parts.acknowledging,
                lambda: principal_behind(parts.credentials, parts.context.database, bearer),
                parts.settings.socket_limits(),
                place,
            )
            await served.serve()
    except Problem as refusal:
        if credential is None:
            raise
        await socket.accept(spoken)
        await socket.send_text(messages.error(refusal))
        await socket.close(messages.closing_code(refusal), refusal.code)


async def _beginning(
    socket: WebSocket, parts: Services, caller: Principal, question: Question
) -> tuple[Subscriber, Place | None]:
    """Whoever asks, at its beginning: where its subscription is, else where it says, else now.

    Raises `VersionInFuture`, `LogTruncated`, `LeaderUnaccepted`, `SubscriptionsFull`, `Invalid`.
    """
    audience = Audience(
        caller.tenant_id, chosen_events(question.types, question.subject), durable=False, on_socket=True
    )
    head = await parts.log_head.fresh()
    if not head.is_accepted:
        raise LeaderUnaccepted("another Postgres answers than the log was written by; versions may still change")
    after = head.version if question.after is None else question.after
    if after > head.version:
        raise VersionInFuture(f"the log is at version {head.version}", version=head.version)
    place = None
    if question.subscription is not None:
        place = Place(namespace_of(caller), question.subscription)
        after = await open_subscription(
            parts.context,
            place.scope,
            place.name,
            after,
            tenant_id=caller.tenant_id,
            keeping=parts.settings.subscription_keeping(),
            subscriptions_max=parts.settings.notifications_subscriptions_max,
        )
    else:
        await require_kept(parts, after, caller.tenant_id, head.version)
    cut = socket.scope["state"].get("abort", lambda: None)
    return Subscriber(audience, after, head.leader_id, parts.feed.limits.buffer_bytes_max, cut), place


def _offered(socket: WebSocket) -> tuple[str | None, str | None]:
    """The credential that came as a subprotocol, as an Authorization header's value, and the protocol to speak.

    Raises `Malformed` for several, or for one without the protocol beside it, which a browser could not go on with.
    """
    offered: list[str] = socket.scope["subprotocols"]
    spoken = messages.PROTOCOL if messages.PROTOCOL in offered else None
    found = [
        one.removeprefix(messages.CREDENTIAL_PREFIX) for one in offered if one.startswith(messages.CREDENTIAL_PREFIX)
    ]
    if not found:
        return None, spoken
    if len(found) > 1 or spoken is None:
        raise Malformed(f"offer {messages.PROTOCOL} and one {messages.CREDENTIAL_PREFIX}<key or token>")
    return f"Bearer {found[0]}", spoken


def _question(socket: WebSocket) -> Question:
    """Raises `Invalid` for what is none, and for parameters that are not known."""
    asked: dict[str, Any] = {}
    for name, value in socket.query_params.multi_items():
        if name in SEVERAL:
            asked.setdefault(name, []).append(value)
        else:
            asked[name] = [asked[name], value] if name in asked else value
    try:
        return Question.model_validate(asked)
    except ValidationError as error:
        raise invalid_from([{**found, "loc": ("query", *found["loc"])} for found in error.errors()]) from None
