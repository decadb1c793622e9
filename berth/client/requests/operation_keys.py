"""The keys of this client's writes: `{client_id}:{sequence}:{nonce}:{created_at}` (docs/reference/python-client.md).

The client id is the same after a restart; the sequence counts one source's writes; the nonce, 8 random bytes in hex, is
drawn when the source starts, so that a restart never uses a key again; `created_at` is when the key was made, in whole
seconds since 1970 by the server's clock, so that the key itself shows whether its response can still be stored.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

from berth.client.errors import Invalid

KEY_LENGTH_MAX = 255
NUMBER_DIGITS_MAX = 15
CLIENT_ID_LENGTH_MAX = KEY_LENGTH_MAX - 16 - 2 * NUMBER_DIGITS_MAX - 3
"""Of the percent-encoded id: what is left beside the longest sequence, the nonce, the longest time and the separators."""

_NUMBER = f"(0|[1-9][0-9]{{0,{NUMBER_DIGITS_MAX - 1}}})"
_KEY = re.compile(rf"([A-Za-z0-9_.~%-]+):{_NUMBER}:([0-9a-f]{{16}}):{_NUMBER}")


@dataclass(frozen=True)
class OperationKey:
    """One key in its parts. `created_at_seconds` is since 1970 by the server's clock, never later than it really was."""

    client_id: str
    sequence: int
    nonce: str
    created_at_seconds: int

    def __str__(self) -> str:
        """The key as it is sent: printable ASCII, at most 255 characters."""
        return f"{encoded_client_id(self.client_id)}:{self.sequence}:{self.nonce}:{self.created_at_seconds}"


def encoded_client_id(client_id: str) -> str:
    """The id with everything percent-encoded that is no letter, digit or one of `_.-~`, separators included.

    Raises `Invalid` for an empty id, or one whose encoded form leaves no room for the rest of the key.
    """
    encoded = quote(client_id, safe="", errors="surrogatepass")
    if not 1 <= len(encoded) <= CLIENT_ID_LENGTH_MAX:
        raise Invalid(
            f"a client id is 1 to {CLIENT_ID_LENGTH_MAX} characters in its percent-encoded form, not {len(encoded)}",
            code="invalid",
        )
    return encoded


def parse_key(key: str) -> OperationKey | None:
    """The parts of a key that such a client made; None for any other key."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    encoded, sequence, nonce, created_at = found.groups()
    try:
        parsed = OperationKey(unquote(encoded, errors="surrogatepass"), int(sequence), nonce, int(created_at))
        return parsed if str(parsed) == key else None
    except (UnicodeDecodeError, Invalid):
        return None


@dataclass(frozen=True)
class _Start:
    process: int
    nonce: str
    numbers: Iterator[int]


class KeySequence:
    """Draws keys, each once: from any thread or task, and in a forked process under another nonce."""

    def __init__(self, client_id: str, now_seconds: Callable[[], float]) -> None:
        """Begin at 1. `now_seconds` is the server's clock. Raises `Invalid` for an unusable client id."""
        encoded_client_id(client_id)
        self._client_id = client_id
        self._now_seconds = now_seconds
        self._start = _begin()

    def draw(self) -> OperationKey:
        """The next key."""
        if self._start.process != os.getpid():
            # A lock here could have been held by another thread at the fork, and then for ever; a lost race only draws
            # one nonce more.
            self._start = _begin()
        start = self._start
        return OperationKey(self._client_id, next(start.numbers), start.nonce, max(0, int(self._now_seconds())))


def _begin() -> _Start:
    return _Start(os.getpid(), secrets.token_hex(8), itertools.count(1))
