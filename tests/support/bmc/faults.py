"""The script of faults: which of the coming requests fail or lie, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum, auto


class Fault(StrEnum):
    """What happens to one request."""

    BUSY = auto()  # 503 with Retry-After, no effect
    ERROR = auto()  # 500, no effect
    ERROR_WITH_EFFECT = auto()  # 500, after the effect
    UNAUTHORISED = auto()  # 401, no effect
    NO_ANSWER = auto()  # no answer, no effect
    NO_ANSWER_WITH_EFFECT = auto()
    QUEUED = auto()  # no answer, the effect `seconds` later
    DELAYED = auto()  # success now, the effect `seconds` later
    LIE = auto()  # success, no effect
    BROKEN_BEFORE = auto()  # connection broken, no effect
    BROKEN_AFTER = auto()  # connection broken, after the effect
    ENDLESS = auto()  # a body without an end
    SLOW = auto()  # a body of a byte now and then, without an end
    BODY = auto()  # success, with `body`
    REDIRECT = auto()  # 307 to `body`
    CHANGED = auto()  # another client changed the resource just before


WITHOUT_EFFECT = frozenset(
    {
        Fault.BUSY,
        Fault.ERROR,
        Fault.UNAUTHORISED,
        Fault.NO_ANSWER,
        Fault.LIE,
        Fault.BROKEN_BEFORE,
        Fault.REDIRECT,
    }
)


@dataclass
class Rule:
    """A fault of the next `times` requests that match `METHOD path`."""

    match: str
    fault: Fault
    times: int = 1
    seconds: float = 0.0
    body: bytes = b""


class Script:
    """Rules in order; the first that matches and is not used up counts."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def add(self, match: str, fault: Fault, times: int = 1, seconds: float = 0.0, body: bytes = b"") -> None:
        self.rules.append(Rule(match, fault, times, seconds, body))

    def next_for(self, line: str) -> Rule | None:
        for rule in self.rules:
            if rule.times > 0 and re.search(rule.match, line):
                rule.times -= 1
                return rule
        return None
