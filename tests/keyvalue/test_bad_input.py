"""Bad input to transactions: what is refused with which code, and that it changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.calling import Caller, problem, refusal
from tests.keyvalue.committing import Keys, b64, b64url, clear, delete, put, unchanged, unchanged_range

VERSIONS = [-1, 2**63, 2**64, 1.5, "1", True, None]
BAD_BODIES: list[tuple[str, Any]] = [
    *[(f"base64 {text!r}", {"operations": [{"type": "write", "key": text, "value": ""}]})
      for text in ("a", "YQ", "YQ=", "Y Q==", "YQ==\n", "_-8=", "YQ===", "ä", "\u0000", "", 5, None)],
    ("base64 of a value", {"operations": [{"type": "write", "key": "YQ==", "value": "YQ"}]}),
    ("no value", {"operations": [{"type": "write", "key": "YQ=="}]}),
    ("a value too many", {"operations": [{"type": "delete", "key": "YQ==", "value": ""}]}),
    ("unknown operation", {"operations": [{"type": "increment", "key": "YQ=="}]}),
    ("no type", {"operations": [{"key": "YQ=="}]}),
    ("unknown precondition", {"preconditions": [{"type": "exists", "key": "YQ==", "version": 0}]}),
    ("operations among preconditions", {"preconditions": [delete(b"a")], "read_version": 0}),
    ("unknown member", {"operations": [], "dry_run": True}),
    ("no list", {"operations": {}}),
    ("no object", []),
    ("short request_id", {"request_id": "x" * 19}),
    ("long request_id", {"request_id": "x" * 256}),
    ("request_id with a line", {"request_id": "x" * 20 + "\n"}),
    *[(f"read_version {version!r}", {"read_version": version}) for version in VERSIONS if version is not None],
    *[(f"version {version!r}", {"preconditions": [{**unchanged(b"a"), "version": version}], "read_version": 0})
      for version in VERSIONS if version is not None],
]  # fmt: skip


def counts(keys: Keys) -> tuple[dict[bytes, bytes], int]:
    """What could have changed."""
    return keys.every()[0], keys.version()


def test_what_cannot_be_read_is_400_and_changes_nothing(keys: Keys) -> None:
    keys.committed([put(b"a", b"1")])
    before = counts(keys)
    for what, body in BAD_BODIES:
        assert problem(keys.send("POST", "/commit", body), 400, "malformed")["outcome"] == "not_done", what
    for content in (b"", b"{", b"\xff\xfe{}", b"null"):
        headers = {"authorization": f"Bearer {keys.caller.key}", "content-type": "application/json"}
        answer = keys.caller.http.post("/v1/commit", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed"), content
    refused: list[tuple[str, dict[str, Any]]] = [
        ("range_invalid", {"operations": [put(b"a", b"2"), clear(b"b", b"a")]}),
        ("range_invalid", {"operations": [put(b"a", b"2"), clear(b"b", b"b")]}),
        ("range_invalid", {"preconditions": [unchanged_range(b"b", b"a", 0)]}),
        ("version_missing", {"operations": [put(b"a", b"2")], "preconditions": [unchanged(b"a")]}),
        ("version_in_future", {"operations": [put(b"a", b"2")], "read_version": before[1] + 1}),
        ("version_in_future", {"operations": [put(b"a", b"2")], "read_version": 2**63 - 1}),
        ("version_in_future", {"operations": [put(b"a", b"2")], "preconditions": [unchanged(b"a", before[1] + 9)]}),
    ]
    for code, body in refused:
        problem(keys.send("POST", "/commit", body), 400, code)
    assert counts(keys) == before


def test_what_is_too_large_is_413_and_changes_nothing(keys: Keys) -> None:
    before = counts(keys)
    for body in (
        {"operations": [put(b"k%d" % n, b"") for n in range(1_001)]},
        {"operations": [put(b"k", b"") for n in range(10_000)]},
        {"preconditions": [unchanged(b"k", 0)] * 1_001},
        {"operations": [put(b"k" * 1_025, b"")]},
        {"operations": [clear(b"", b"k" * 1_026)]},
        {"operations": [put(b"k", b"v" * 65_537)]},
        {"operations": [put(b"k%d" % n, b"v" * 40_000) for n in range(4)]},
        {"operations": [put(b"k%d" % n, b"v" * 60_000) for n in range(6)]},
    ):
        assert problem(keys.send("POST", "/commit", body), 413, "too_large")["outcome"] == "not_done"
    assert counts(keys) == before


def test_the_largest_of_each_is_taken(keys: Keys) -> None:
    keys.committed([put(b"k" * 1_024, b"v" * 65_536)])
    keys.committed([clear(b"", b"k" * 1_024 + b"\0")])
    keys.committed([put(b"%04d" % n, b"") for n in range(1_000)], [unchanged(b"%04d" % n, 0) for n in range(1_000)])
    assert len(keys.every()[0]) == 1_000
    keys.committed([put(b"%d" % n, b"v" * 48_500) for n in range(3)])


def test_reads_are_refused_as_everywhere(keys: Keys, api: Any) -> None:
    for path in ("/kv/a", "/kv/YQ=", "/kv/Y+==", "/kv/YWJ%20", f"/kv/{'YWFh' * 700}"):
        assert refusal(keys.send("GET", path)) == (422, "invalid")
    assert refusal(keys.find(b"k" * 2_000)) == (404, "not_found")
    bad: list[dict[str, Any]] = [{"begin": "a"}, {"end": "Y"}, {"limit": 0}, {"limit": 501}, {"prefix": "YQ"}]
    for query in bad:
        assert refusal(keys.send("GET", "/kv", **query)) == (422, "invalid")
    for begin, end in ((b"b", b"a"), (b"a", b"a")):
        assert refusal(keys.send("GET", "/kv", begin=b64url(begin), end=b64url(end))) == (400, "range_invalid")
    assert refusal(keys.send("GET", "/kv", cursor="bm9uc2Vuc2U")) == (400, "invalid_cursor")
    for query in (
        {"request_id": "x" * 20}, {"min_version": 0}, {"request_id": "", "min_version": 0},
        {"request_id": "x" * 20, "min_version": 2**63}, {"request_id": "x" * 20, "min_version": -1},
        {"request_id": "x" * 300, "min_version": 0},
    ):  # fmt: skip
        assert refusal(keys.send("GET", "/status", **query)) == (422, "invalid")
    assert refusal(keys.send("GET", "/status", request_id="x" * 20, min_version=2**63 - 1)) == (
        400,
        "version_in_future",
    )
    stranger = Keys(Caller(keys.caller.http, "berth_absent"))
    for method, path in (("POST", "/commit"), ("GET", "/kv"), ("GET", "/kv/YQ"), ("GET", "/status")):
        assert refusal(stranger.send(method, path, {} if method == "POST" else None)) == (401, "unauthenticated")


@pytest.mark.parametrize("bound", ["keys", "bytes"])
def test_a_full_namespace_takes_nothing_more_and_gives_back(keys: Keys, bound: str, monkeypatch: Any) -> None:
    keys.committed([put(b"first", b"1")])
    services = keys.caller.http.app  # type: ignore[attr-defined]
    while not hasattr(services, "_services"):
        services = services._app
    monkeypatch.setattr(services._services.settings, f"kv_namespace_{bound}_max", 3 if bound == "keys" else 30)
    keys.committed([put(b"second", b"2"), put(b"third", b"3")])
    more = [put(b"%d" % n, b"v" * 10) for n in range(2)]
    assert problem(keys.try_commit(more), 409, "quota_exceeded")["outcome"] == "not_done"
    assert len(keys.every()[0]) == 3
    keys.committed([put(b"third", b"4"), delete(b"second")])
    keys.committed([put(b"second", b"5")])
    assert b64(b"") == ""


def test_a_header_that_is_no_key_is_refused_also_beside_a_request_id(keys: Keys) -> None:
    for key in ("", '""', "k" * 300):
        for body in ({}, {"request_id": "a-request-id-that-is-long-enough"}):
            headers = {"authorization": f"Bearer {keys.caller.key}", "idempotency-key": key}
            assert refusal(keys.caller.http.post("/v1/commit", json=body, headers=headers)) == (400, "malformed")
