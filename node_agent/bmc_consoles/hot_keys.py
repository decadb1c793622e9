"""The keys that leave a BMC's serial console: read from the text in which it announces them, and kept from it. Pure.

Redfish gives a text for people (`HotKeySequenceDisplay`), for example "Press ~. to exit console". Only texts of a small grammar
are read; any other one, such as one with a second sequence, is not guessed: the console is refused.
"""

from __future__ import annotations

import re
from typing import Final

Key = frozenset[int]
"""The bytes that one key press may send."""
Keys = tuple[Key, ...]

_ENTER: Final = frozenset(b"\r\n")
_NAMED: Final = {"enter": _ENTER, "return": _ENTER, "esc": frozenset(b"\x1b"), "escape": frozenset(b"\x1b")}
_CONTROL: Final = r"(?:\^|(?:ctrl|control)\ ?[-+]\ ?)(?P<control>[@-_a-z])"
_TYPED: Final = r"(?P<typed>[~#&%@!]\.)"
"""An escape character and a point, which no other word follows: `~.`."""
_ESCAPE: Final = r"(?P<quote>['\"]?)ESC\ ?(?P<escaped>[()])(?P=quote)"
_KEY: Final = r"<(?:enter|return|esc|escape|[a-z0-9])>"
_LIST: Final = rf"(?P<list>{_KEY}(?:,?\ (?:and\ )?(?:then\ )?{_KEY}){{1,4}})"
_LEAD: Final = r"(?:(?:press|type|use|enter)\ (?:the\ )?(?:(?:hot\ ?keys?|keys?)\ (?:sequence\ )?)?)"
_LEAVE: Final = r"(?:exit|quit|leave|end|terminate|close|disconnect|detach|return)"
_WORDS: Final = r"(?:\ (?:the|this|from|to|serial|sol|ssh|host|system|text|console|session|cli|bmc|prompt))"
_ANNOUNCED: Final = re.compile(
    rf"(?P<lead>{_LEAD})?(?:{_CONTROL}|{_TYPED}|{_ESCAPE}|{_LIST})(?P<tail>\ to\ {_LEAVE}{_WORDS}{{0,6}}\.?)?",
    re.IGNORECASE | re.ASCII,
)
"""One sequence, and what it does. A sentence must say that it leaves something, so that a point is part of it or is not."""


def read_hot_keys(display: str) -> Keys | None:
    """The keys that a text announces; None unless the whole text is one sequence, alone or in a sentence that is known."""
    found = _ANNOUNCED.fullmatch(display.strip(" "))
    if found is None or (found["lead"] and not found["tail"]):
        return None
    if found["control"]:
        key = ord(found["control"].upper()) & 0x1F
        return None if key in _ENTER else (frozenset({key}),)
    if found["typed"]:
        return tuple(frozenset({ord(one)}) for one in found["typed"])
    if found["escaped"]:
        return _NAMED["esc"], frozenset({ord(found["escaped"])})
    return tuple(_named(one) for one in re.findall(r"<([A-Za-z0-9]+)>", found["list"]))


def _named(name: str) -> Key:
    return _NAMED.get(name.lower()) or frozenset(ord(one) for one in (name.lower(), name.upper()))


class HotKeyFilter:
    """Passes what a tenant types, but for each byte that would complete the sequence: it never reaches the BMC whole.

    Whatever is typed, the bytes that were passed contain the sequence nowhere.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._passed = bytearray(b"\r")  # the BMC may count the begin of the session as the begin of a line
        self.dropped = 0

    def passed(self, data: bytes) -> bytes:
        """The bytes of `data` that may go to the BMC now."""
        if not self._keys:
            return data
        begin = len(self._passed)
        for byte in data:
            if self._completes(byte):
                self.dropped += 1
            else:
                self._passed.append(byte)
        found = bytes(self._passed[begin:])
        del self._passed[: max(0, len(self._passed) - len(self._keys) + 1)]
        return found

    def _completes(self, byte: int) -> bool:
        before = len(self._keys) - 1
        if byte not in self._keys[-1] or len(self._passed) < before:
            return False
        last = self._passed[len(self._passed) - before :]
        return all(one in key for one, key in zip(last, self._keys, strict=False))
