"""`GET /v1/subscribe`: a stream of server-sent events, from any version on (docs/reference/feed.md)."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from orchestrator.http.authentication import admit, require_unchanged
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.services import Parts, Services
from orchestrator.log.events import OF_THE_LOG, EventType
from orchestrator.log.feed.frames import Audience
from orchestrator.log.feed.streams import EventStream
from orchestrator.log.feed.subscribers import Subscriber
from orchestrator.log.queries import find_kept
from orchestrator.log.refusals import LeaderUnaccepted, LogTruncated, VersionInFuture
from orchestrator.log.store.feed import TRANSACTION, Filter
from orchestrator.log.version_parameters import VERSION_MAX
from orchestrator.problems import Invalid, Quota
from orchestrator.tenants.queries import find_limit
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, TENANT_READERS

router = APIRouter(tags=["log"], responses=PROBLEM_RESPONSES)
NAMES_MAX: Final = 50
NAME_LENGTH_MAX: Final = 200
TOKEN_LENGTH_MAX: Final = 16_384
KNOWN_TYPES: Final = frozenset({*EventType, TRANSACTION, *OF_THE_LOG})
_STREAM: Final = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}

After = Annotated[
    int | None, Query(ge=0, le=VERSION_MAX, description="The stream begins after this version; default: the newest")
]
Names = Annotated[list[str] | None, Query(max_length=NAMES_MAX)]


def _bearer(
    request: Request,
    access_token: Annotated[
        str | None,
        Query(
            max_length=TOKEN_LENGTH_MAX, description="For a browser's EventSource, which cannot send headers (RFC 6750)"
        ),
    ] = None,
) -> str:
    header = request.headers.get("authorization", "")
    return header if header or access_token is None else f"Bearer {access_token}"


@router.get("/subscribe", response_class=Response, responses=_STREAM)  # type: ignore[arg-type]
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def subscribe(
    request: Request,
    parts: Parts,
    bearer: Annotated[str, Depends(_bearer)],
    after: After = None,
    durable: bool = True,
    types: Names = None,
    subject: Names = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Stream events; `Last-Event-ID` overrides `after`. A filtered stream has checkpoints instead of `prev_version`."""
    caller = await admit(request, bearer)
    audience = Audience(caller.tenant_id, chosen_events(types or [], subject or []), durable)
    if last_event_id:
        after = _resumed(last_event_id)
    subscriber = await _subscriber(parts, audience, after, request)

    async def recheck() -> None:
        await require_unchanged(parts, bearer, caller, subscribe)

    return EventStream(parts.feed, subscriber, recheck, await streams_max(parts, caller.tenant_id))


async def streams_max(parts: Services, tenant_id: UUID | None) -> int:
    """The tenant's quota of streams and sockets in this process; operators have none."""
    default = parts.settings.feed_tenant_subscribers_max
    if tenant_id is None:
        return default
    return await find_limit(parts.context.database, tenant_id, Quota.STREAMS, default=default)


async def _subscriber(parts: Services, audience: Audience, after: int | None, request: Request) -> Subscriber:
    """Create the subscriber at its first version. Raises `VersionInFuture`, `LogTruncated`, `LeaderUnaccepted`."""
    head = await parts.log_head.fresh()
    if not head.is_accepted:
        raise LeaderUnaccepted(
            "the log was written under another PostgreSQL timeline, and versions may still change; retry when an operator has"
            " accepted this one"
        )
    parts.context.database.note_version(head.version)
    if after is None:
        after = head.version
    if after > head.version:
        raise VersionInFuture(f"version {after} does not exist; the log ends at {head.version}", version=head.version)
    await require_kept(parts, after, audience.tenant_id, head.version)
    cut = request.scope["state"].get("abort", lambda: None)
    return Subscriber(audience, after, head.leader_id, parts.feed.limits.buffer_bytes_max, cut)


async def require_kept(parts: Services, after: int, tenant_id: UUID | None, version: int) -> None:
    """Raise `LogTruncated` if events after `after` of this tenant (None: any) were dropped."""
    first, truncated = await find_kept(parts.context.database, after, tenant_id)
    if truncated:
        raise LogTruncated(
            f"events after version {after} were truncated; the log begins at {first}",
            first_version=first,
            version=version,
        )


def _resumed(last_event_id: str) -> int:
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 19):
        raise _invalid("Last-Event-ID", "must be the id of an event of this stream: a version")
    version = int(last_event_id)
    if version > VERSION_MAX:
        raise _invalid("Last-Event-ID", "must be at most 2^63 - 1")
    return version


def chosen_events(types: list[str], subjects: list[str]) -> Filter:
    """Parse a filter. Raises `Invalid` for an unknown type, because a misspelt one would never match."""
    for name in types:
        family = name.removesuffix("*") if name.endswith(".*") else None
        if not any(known.startswith(family) if family is not None else known == name for known in KNOWN_TYPES):
            raise _invalid("types", f"{name[:NAME_LENGTH_MAX]!r} is neither an event type nor `<family>.*`")
    for subject in subjects:
        if not 0 < len(subject) <= NAME_LENGTH_MAX or "\0" in subject or "/" not in subject:
            raise _invalid("subject", "must be `<collection>/<id>` or `<collection>/*`")
    return Filter(
        types=frozenset(name for name in types if not name.endswith(".*")),
        families=tuple(sorted(name.removesuffix("*") for name in types if name.endswith(".*"))),
        subjects=frozenset(subject for subject in subjects if not subject.endswith("/*")),
        collections=tuple(sorted(subject.removesuffix("*") for subject in subjects if subject.endswith("/*"))),
    )


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"{field}: {message}", errors=[{"field": field, "message": message}])
