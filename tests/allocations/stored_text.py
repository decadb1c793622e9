"""Where a text is stored in a database."""

from __future__ import annotations

import base64

from tests.allocations.seeding import connect


def places_of(url: str, marker: str) -> list[str]:
    """Every column of every table that contains the marker, as it is or in a task's payload."""
    found = []
    columns = """
        select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
        order by 1, 2
    """
    with connect(url) as connection:
        for table, column in connection.execute(columns).fetchall():
            holds = f"select count(*) from {table} where strpos({column}::text, %s) > 0"
            row = connection.execute(holds.encode(), (marker,)).fetchone()
            found += [f"{table}.{column}"] * (row is not None and row[0] > 0)
        for (payload,) in connection.execute("select envelope ->> 'payload' from node_tasks").fetchall():
            found += ["node_tasks payload"] * (marker.encode() in base64.b64decode(payload))
    return found
