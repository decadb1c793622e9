"""What must hold of the servers themselves: no session of PostgreSQL crashes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.campaign.judging.judging_clients import Violation

CRASHED = re.compile(r"\(PID (\d+)\) was terminated by signal (4|6|7|8|11): [^\n]*")
"""SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV; SIGKILL is a fault of the campaign."""
DISK_FULL = re.compile(r"\[(\d+)\] PANIC: .*No space left on device")
"""PostgreSQL aborts where it cannot write its log: also a fault of the campaign."""


def judge_crashes(logs: Iterable[Path]) -> Iterator[Violation]:
    """Each crash in these logs of servers: whatever statement caused it ends the sessions of every client."""
    for log in logs:
        text = log.read_text(errors="replace") if log.exists() else ""
        full = set(DISK_FULL.findall(text))
        for crash in CRASHED.finditer(text):
            if not (crash[2] == "6" and crash[1] in full):
                yield Violation("no crash", f"{log.stem}: a session {crash[0]}")
