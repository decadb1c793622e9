"""SQLSTATEs of conditions that pass: nothing was committed, and the transaction may succeed on a new connection.

PostgreSQL counts them among the invalid transaction states: psycopg does not raise them as `OperationalError`, as it does
the loss of a connection.
"""

from __future__ import annotations

READ_ONLY = "25006"
"""A standby, or a primary that was deposed: nothing is written there, and the connection leads to the wrong server."""
IDLE_TOO_LONG = "25P03"
"""The server ended a session that was idle in a transaction: the process was paused, or slow."""
TRANSACTION_TOO_LONG = "25P04"
"""The server ended a session whose transaction reached its deadline."""
PASSING_STATES = frozenset({READ_ONLY, IDLE_TOO_LONG, TRANSACTION_TOO_LONG})
