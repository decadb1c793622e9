"""Keys and values, one function per path (docs/reference/keyvalue.md). Keys and values are bytes here and base64 on the wire."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence

from berth.client.calls.call import Call, read, write
from berth.client.keyvalue_models import Commit, CommitStatus, Entry, KeyPage
from berth.process.json_objects import JsonObject

Member = JsonObject


def write_key(key: bytes, value: bytes) -> Member:
    """An operation: give the key this value."""
    return {"type": "write", "key": _text(key), "value": _text(value)}


def delete_key(key: bytes) -> Member:
    """An operation: let there be no such key."""
    return {"type": "delete", "key": _text(key)}


def delete_range(begin: bytes, end: bytes) -> Member:
    """An operation: let there be no key from `begin` on and before `end`."""
    return {"type": "range_delete", "begin": _text(begin), "end": _text(end)}


def unchanged_key(key: bytes, version: int | None = None) -> Member:
    """A precondition: the key has not changed since the version (default: the commit's `read_version`)."""
    return _at({"type": "point_read", "key": _text(key)}, version)


def unchanged_range(begin: bytes, end: bytes, version: int | None = None) -> Member:
    """A precondition: no key from `begin` on and before `end` has changed, come or gone since the version."""
    return _at({"type": "range_read", "begin": _text(begin), "end": _text(end)}, version)


def commit_transaction(
    *,
    operations: Sequence[Member] = (),
    preconditions: Sequence[Member] = (),
    read_version: int | None = None,
    leader_id: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Commit]:
    """Apply the operations in order if every precondition is satisfied; the result's `status` says whether it committed.

    Its `request_id` is the idempotency key. Raises `Malformed`, `TooLarge`, `QuotaExceeded`.
    """
    body = {
        "operations": list(operations), "preconditions": list(preconditions), "read_version": read_version,
        "leader_id": leader_id,
    }  # fmt: skip
    return write("POST", "/v1/commit", Commit, body, idempotency_key)


def get_commit_status(request_id: str, *, min_version: int = 0) -> Call[CommitStatus]:
    """What became of a commit whose answer did not come. One that is not found is not done any more.

    `min_version`: the latest version known before it was sent.
    """
    return read("/v1/status", CommitStatus, request_id=request_id, min_version=min_version)


def get_key(key: bytes, *, min_version: int | None = None) -> Call[Entry]:
    """One key, at `min_version` or later. Raises `NotFound`, whose `extra` has the `read_version` at which that is so."""
    name = urlsafe_b64encode(key).rstrip(b"=").decode()
    return read(f"/v1/kv/{name}", Entry, min_version=min_version)


def list_keys(
    *,
    begin: bytes = b"",
    end: bytes | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    min_version: int | None = None,
) -> Call[KeyPage]:
    """A page of the keys from `begin` on and before `end`, in the order of their bytes; each page has its `read_version`."""
    return read(
        "/v1/kv", KeyPage, begin=_url(begin), end=None if end is None else _url(end), limit=limit, cursor=cursor,
        min_version=min_version,
    )  # fmt: skip


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()


def _url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode()


def _at(member: Member, version: int | None) -> Member:
    return member if version is None else {**member, "version": version}
