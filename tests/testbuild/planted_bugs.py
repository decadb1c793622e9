"""Bugs that a process of the test build can be started with (BERTH_PLANTED_BUG): each breaks one promise on purpose.

A bug is a function without arguments that patches modules of ours. It runs before the process's own module does, so it
imports what it patches itself. Which processes get it is said by whoever starts them.
"""

from __future__ import annotations

from collections.abc import Callable

PLANTED_BUGS: dict[str, Callable[[], None]] = {}

PLANTED_SQL: dict[str, str] = {}
"""Bugs of the database: SQL that is run after the migrations. A bug may have a part here and a part above."""
