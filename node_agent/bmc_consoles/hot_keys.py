"""The keys that leave a BMC's serial console: read from the text in which it announces them, and kept from it. Pure.

Redfish gives a text for people (`HotKeySequenceDisplay`), for example "Press ~. to exit console". A text that is not understood
is not guessed: the console is refused.
"""

from __future__ import annotations

import re
from typing import Final

Key = frozenset[int]
"""The bytes that one key press may send."""
Keys = tuple[Key, ...]

SEQUENCE_KEYS_MAX: Final = 8
_ENTER: Final = frozenset(b"\r\n")
_NAMED: Final = {
    "enter": _ENTER, "return": _ENTER, "cr": _ENTER, "esc": frozenset(b"\x1b"), "escape": frozenset(b"\x1b"),
    "tab": frozenset(b"\t"), "space": frozenset(b" "), "del": frozenset(b"\x7f"), "tilde": frozenset(b"~"),
    "period": frozenset(b"."), "dot": frozenset(b"."),
}  # fmt: skip
_CONTROL: Final = re.compile(
    r"\^([@-_a-z?])|(?:ctrl|control)\s*[-+]\s*(?:shift\s*[-+]\s*)?([@-_a-z?])(?![A-Za-z0-9])", re.IGNORECASE
)
_FILLERS: Final = frozenset({
    "press", "type", "hit", "use", "the", "key", "keys", "hotkey", "hotkeys", "hot", "sequence", "and", "then", "followed", "by",
    "of", "character", "is",
})  # fmt: skip
_END: Final = re.compile(r"\b(?:to|for)\b.*", re.IGNORECASE | re.DOTALL)
"""What the keys do: "to exit console", "to terminate session"."""
_WORD: Final = re.compile(r"<?([A-Za-z]{2,})>?")


def read_hot_keys(display: str) -> Keys | None:
    """The keys that a text announces; None if it is not understood."""
    left = re.sub(r"[\"'`,:]", " ", _END.sub("", display)).strip()
    if re.match(r"enter\b", left, re.IGNORECASE):
        return None  # the key, or to type what follows
    found: list[Key] = []
    while left := left.lstrip(" \t-+"):
        taken = _take(left)
        if taken is None:
            return None
        keys, length = taken
        found += keys
        left = left[length:]
        if len(found) > SEQUENCE_KEYS_MAX:
            return None
    # One printable character alone is no sequence: a tenant could not type it any more.
    is_usable = bool(found) and not (len(found) == 1 and min(found[0]) >= 0x20 and 0x7F not in found[0])
    return tuple(found) if is_usable else None


def _take(text: str) -> tuple[list[Key], int] | None:
    """The keys of the first word of a text, and its length; None if it is not understood."""
    if control := _CONTROL.match(text):
        return [_control(control[1] or control[2])], control.end()
    if word := _WORD.match(text):
        name = word[1].lower()
        if name in _NAMED:
            return [_NAMED[name]], word.end()
        return ([], word.end()) if name in _FILLERS else None
    if single := re.match(r"<([!-~])>", text):
        return [_typed(single[1])], single.end()
    typed = re.match(r"[!-~]{1,4}(?=\s|$)", text)
    if typed is None or sum(one.isalnum() for one in typed[0]) > 1:  # F10 is one key
        return None
    return [_typed(one) for one in typed[0]], typed.end()


def _control(letter: str) -> Key:
    return frozenset({0x7F if letter == "?" else ord(letter.upper()) & 0x1F})


def _typed(character: str) -> Key:
    return frozenset(ord(one) for one in (character.lower(), character.upper()))


class HotKeyFilter:
    """Passes what a tenant types, but for each byte that would complete the sequence: it never reaches the BMC whole.

    Whatever is typed, the bytes that were passed contain the sequence nowhere.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._passed = bytearray()
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
