"""`GET /v1/kv` and `GET /v1/kv/{key}`: reads of keys and values (docs/reference/keyvalue.md)."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from berth.process.json_objects import JsonObject
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import cursor_after, place_after
from orchestrator.http.services import Parts, Services
from orchestrator.keyvalue import schemas
from orchestrator.keyvalue.queries import VersionedRead, find_key, find_range, with_versions
from orchestrator.keyvalue.rules import RangeInvalid
from orchestrator.keyvalue.store.keys import Entry
from orchestrator.log.namespaces import namespace_of
from orchestrator.problems import NotFound
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, TENANT_READERS

router = APIRouter(prefix="/kv", tags=["log"], responses=PROBLEM_RESPONSES)
KEYS = "keys"
PAGE_BYTES_MAX = 1_048_576
KeyPath = Annotated[
    str,
    Path(
        pattern=r"^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}(==)?|[A-Za-z0-9_-]{3}=?)?$",
        min_length=2, max_length=schemas.BASE64URL_LENGTH_MAX,
        description="Base64url (RFC 4648 §5), with or without padding",
    ),
]  # fmt: skip


@router.get("", response_model=schemas.KeyRange)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def read_range(query: Annotated[schemas.RangeQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """Read a range in key order, page by page. Each page has its own `read_version`."""
    begin, end = _decoded(query.begin), None if query.end is None else _decoded(query.end)
    if end is not None and begin >= end:
        raise RangeInvalid("the end of a range must be after its beginning")
    begin = place_after(query.cursor, KEYS, lambda text: _decoded(text) + b"\0", begin)
    namespace = namespace_of(caller)
    found = await _sequenced(
        parts,
        namespace,
        await find_range(parts.context.database, namespace, begin, end, limit=query.limit, bytes_max=PAGE_BYTES_MAX),
    )
    last = urlsafe_b64encode(found.entries[-1].key).decode() if found.more and found.entries else None
    return json_response(
        {
            "items": [_shown(entry) for entry in found.entries],
            "next_cursor": None if last is None else cursor_after(KEYS, last),
            "read_version": found.snapshot.version,
            "leader_id": found.snapshot.leader_id,
        }
    )


@router.get("/{key}", response_model=schemas.KeyRead)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def read_one_key(key: KeyPath, caller: Caller, parts: Parts) -> Response:
    """Read one key. 404 names the version at which the key does not exist."""
    namespace = namespace_of(caller)
    found = await _sequenced(parts, namespace, await find_key(parts.context.database, namespace, _decoded(key)))
    at = {"read_version": found.snapshot.version, "leader_id": found.snapshot.leader_id}
    if not found.entries:
        raise NotFound(f"the key does not exist at version {found.snapshot.version}", **at)
    return json_response({**_shown(found.entries[0]), **at})


async def _sequenced(parts: Services, namespace: UUID, found: VersionedRead) -> VersionedRead:
    """Sequence the commits that the read includes, deletes among them, and add their versions."""
    if found.snapshot.pending_mark is None:
        return found
    await parts.log_head.fresh()
    return await with_versions(parts.context.database, namespace, found)


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _shown(entry: Entry) -> JsonObject:
    return {"key": b64encode(entry.key).decode(), "value": b64encode(entry.value).decode(), "version": entry.version}
