"""A local stack on a database that is being restored: its servers run, and everything else waits for `berth restore run`."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from berth.process.restore_gate import RestoreOpen, require_no_restore_now

LOOK_SECONDS = 0.2


def wait_until_restored(database_url: str, note: Callable[[str], None], note_end: Callable[[], None]) -> None:
    """Return once no restore is open. If one was: `note` gets the reason of the wait, once, and `note_end` is called.

    An operator ends the wait with `berth restore run`, or by stopping the stack.
    """
    was_open = False
    while True:
        try:
            with psycopg.connect(database_url, autocommit=True) as connection:
                require_no_restore_now(connection)
            break
        except RestoreOpen as restore:
            if not was_open:
                note(str(restore))
            was_open = True
        time.sleep(LOOK_SECONDS)
    if was_open:
        note_end()
