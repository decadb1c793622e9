"""A revision locks only the tables that it names, in the order in which requests use them, so that traffic goes on."""

from __future__ import annotations

from itertools import pairwise

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

import migrations
from migrations import upgrading

SCRIPTS = ScriptDirectory.from_config(upgrading._config())
LATER = sorted(script.revision for script in SCRIPTS.walk_revisions() if script.revision > "0047")
HELD = """
select distinct c.relname from pg_locks l join pg_class c on c.oid = l.relation
where l.pid = pg_backend_pid() and c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
    and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') and c.oid <= :newest
"""


def test_each_revision_locks_what_it_names(empty_url: str) -> None:
    migrations.upgrade(empty_url, "0047")
    engine = create_engine(upgrading.sqlalchemy_url(empty_url))
    for revision in LATER:
        with engine.begin() as connection:
            newest = connection.execute(text("select max(oid::bigint) from pg_class")).scalar_one()
            config = upgrading._config()
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            held = {str(name) for (name,) in connection.execute(text(HELD), {"newest": newest})}
        named = SCRIPTS.get_revision(revision).module.LOCKS
        assert held - {"alembic_version"} <= set(named), revision
        hot = [table for table in named if table in upgrading.ORDER_OF_LOCKS]
        assert all(upgrading.ORDER_OF_LOCKS.index(a) < upgrading.ORDER_OF_LOCKS.index(b) for a, b in pairwise(hot))
    engine.dispose()
    assert LATER
