"""Only a trusted proxy may say where a request comes from, and wrong credentials slow down their own address alone."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from orchestrator.edge.proxy_protocol import SIGNATURE, HeaderRefused, read_source
from orchestrator.edge.sources import TrustedProxies
from orchestrator.http import failed_attempts
from orchestrator.http.failed_attempts import FailedAttempts
from orchestrator.problems import TooManyFailures
from tests.support.waiting import let_others_run

PROXY, CALLER = "10.0.0.1", "203.0.113.7"
GOOD, BAD = b"good", b"bad"


def source(header: str, peer: str, *fields: tuple[str, str]) -> str | None:
    """The source of a request from `peer` with these header fields."""
    proxies = TrustedProxies(["10.0.0.0/8", "fd00::/8"], header)
    scope: dict[str, Any] = {
        "client": (peer, 1),
        "headers": [(name.encode(), value.encode()) for name, value in fields],
    }
    return proxies.source_of(scope)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (CALLER, CALLER),
        (f"1.1.1.1, {CALLER}", CALLER),
        (f"1.1.1.1, {CALLER}, 10.9.9.9", CALLER),
        (f"1.1.1.1,{CALLER}:4711", CALLER),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("::ffff:203.0.113.7", CALLER),
        ("1.1.1.1, unknown", None),
        ("10.2.3.4", None),
        ("", None),
    ],
)
def test_the_rightmost_address_that_is_no_proxy_is_the_caller(value: str, expected: str | None) -> None:
    assert source("x-forwarded-for", PROXY, ("x-forwarded-for", value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"for={CALLER};proto=https;by=10.0.0.1", CALLER),
        (f'for=1.1.1.1, For="{CALLER}:4711"', CALLER),
        ('for="[2001:db8::1]:4711"', "2001:db8::1"),
        (f"for=1.1.1.1, for={CALLER}, proto=http;for=10.1.1.1", CALLER),
        (f'for=1.1.1.1;by="a,for={CALLER}"', "1.1.1.1"),
        ("for=1.1.1.1, for=_hidden", None),
        ("for=1.1.1.1, proto=https", None),
    ],
)
def test_forwarded_is_read_as_the_standard_says(value: str, expected: str | None) -> None:
    assert source("forwarded", PROXY, ("forwarded", value)) == expected


def test_a_header_of_anyone_else_is_ignored() -> None:
    fields = (("x-forwarded-for", "1.1.1.1"), ("forwarded", "for=1.1.1.1"))
    for header in ("x-forwarded-for", "forwarded"):
        assert source(header, CALLER, *fields) == CALLER
    assert source("x-forwarded-for", PROXY, ("forwarded", "for=1.1.1.1"), ("x-forwarded-for", CALLER)) == CALLER
    assert source("forwarded", PROXY, ("x-forwarded-for", "1.1.1.1"), ("forwarded", f"for={CALLER}")) == CALLER
    assert source("x-forwarded-for", PROXY, ("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", CALLER)) == CALLER


def read(received: bytes) -> tuple[tuple[str, int] | None, bytes]:
    """The source that a PROXY header names, and what is left behind it."""
    left = bytearray(received)

    async def take(count: int) -> bytes:
        if len(left) < count:
            raise EOFError
        taken = bytes(left[:count])
        del left[:count]
        return taken

    return asyncio.run(read_source(take)), bytes(left)


def binary(command: int, family: int, body: bytes, length: int | None = None) -> bytes:
    """A header of version 2."""
    return (
        SIGNATURE + struct.pack("!BBH", 0x20 | command, family << 4 | 1, len(body) if length is None else length) + body
    )


FOUR = bytes([203, 0, 113, 7, 10, 0, 0, 1]) + struct.pack("!HH", 4711, 443)
SIX = bytes.fromhex("20010db8" + "00" * 11 + "01") + bytes(16) + struct.pack("!HH", 4711, 443)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n", (CALLER, 4711)),
        (b"PROXY TCP6 2001:db8::1 fd00::1 4711 443\r\n", ("2001:db8::1", 4711)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN a b c\r\n", None),
        (binary(1, 1, FOUR), (CALLER, 4711)),
        (binary(1, 1, FOUR + b"\x04\x00\x01x"), (CALLER, 4711)),
        (binary(1, 2, SIX), ("2001:db8::1", 4711)),
        (binary(0, 0, b""), None),
        (binary(1, 3, bytes(216)), None),
    ],
)
def test_a_proxy_header_names_the_source(header: bytes, expected: tuple[str, int] | None) -> None:
    assert read(header + b"GET / HTTP/1.1\r\n") == (expected, b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "header",
    [
        b"GET / HTTP/1.1\r\nhost: here\r\n\r\n",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4711" + b" " * 200,
        b"PROXY TCP4 2001:db8::1 fd00::1 4711 443\r\n",
        b"PROXY TCP4 nonsense 10.0.0.1 4711 443\r\n",
        b"PROXY TCP4 203.0.113.7\r\n",
        binary(1, 1, FOUR[:6]),
        binary(1, 1, b"", 60_000),
        binary(2, 1, FOUR),
        SIGNATURE + b"\x11\x11\x00\x00",
    ],
)
def test_anything_else_is_no_proxy_header(header: bytes) -> None:
    with pytest.raises(HeaderRefused):
        read(header)


def look_up(failed: FailedAttempts, source: str | None, digest: bytes, *, is_wrong: bool) -> None:
    """A credential of a source that is looked up, and is wrong or not."""
    if asyncio.run(failed.begin(source, digest)):
        assert source is not None
        failed.end(source, is_wrong=is_wrong)


def test_failures_slow_down_their_own_source_only() -> None:
    failed = FailedAttempts(3, 0.001)
    look_up(failed, CALLER, BAD, is_wrong=False)
    for _ in range(3):
        look_up(failed, CALLER, BAD, is_wrong=True)
    with pytest.raises(TooManyFailures) as refused:
        look_up(failed, CALLER, BAD, is_wrong=True)
    assert refused.value.headers()["connection"] == "close"
    look_up(failed, "203.0.113.8", BAD, is_wrong=True)
    look_up(failed, None, BAD, is_wrong=True)
    failed.note_success(GOOD)
    look_up(failed, CALLER, GOOD, is_wrong=False)


def test_no_more_are_looked_up_at_once_than_may_be_wrong() -> None:
    """Of 50 credentials at once 3 are looked up; when those are wrong, the others are refused without a lookup."""

    async def scene() -> None:
        failed = FailedAttempts(3, 0.001)
        asking = [asyncio.create_task(failed.begin(CALLER, b"%d" % number)) for number in range(50)]
        await let_others_run(5)
        assert [task.done() for task in asking] == [True] * 3 + [False] * 47
        asking[10].cancel()
        failed.end(CALLER, is_wrong=False)
        await let_others_run(5)
        assert sum(task.done() for task in asking) == 5, "one more is looked up, and one was cancelled"
        for _ in range(3):
            failed.end(CALLER, is_wrong=True)
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(one) for one in found].count(TooManyFailures) == 45
        assert not failed.waiting, "no entry is kept for a source without lookups"

    asyncio.run(scene())


def test_a_source_may_fail_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("orchestrator.http.failed_attempts.time.monotonic", lambda: now[0])
    failed = FailedAttempts(1, 2.0)
    look_up(failed, CALLER, BAD, is_wrong=True)
    with pytest.raises(TooManyFailures):
        look_up(failed, CALLER, BAD, is_wrong=True)
    now[0] = 0.5
    look_up(failed, CALLER, BAD, is_wrong=True)


def test_the_addresses_of_one_network_are_one_source() -> None:
    failed = FailedAttempts(1, 0.001)
    look_up(failed, "2001:db8::1", BAD, is_wrong=True)
    with pytest.raises(TooManyFailures):
        look_up(failed, "2001:db8::ffff", BAD, is_wrong=True)
    look_up(failed, "2001:db8:0:1::1", BAD, is_wrong=True)


def test_the_table_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_attempts, "SOURCES_MAX", 2)
    monkeypatch.setattr(failed_attempts, "GOOD_MAX", 2)
    failed = FailedAttempts(1, 0.001)
    for number in range(3):
        look_up(failed, f"203.0.113.{number}", BAD, is_wrong=True)
        failed.note_success(b"%d" % number)
    look_up(failed, "203.0.113.0", BAD, is_wrong=False)
    for number in (1, 2):
        with pytest.raises(TooManyFailures):
            look_up(failed, f"203.0.113.{number}", b"0", is_wrong=True)
        look_up(failed, f"203.0.113.{number}", b"%d" % number, is_wrong=False)
