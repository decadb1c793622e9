"""Upgrades a database to a revision and to the present SQL functions, or raises one sentence that says why it cannot.

Upgrades run one at a time (a transaction-level advisory lock). An empty database is made in one transaction. After that each
revision is a transaction, so that its locks are held for a moment and not for the whole upgrade. The functions change in another
transaction, which also notes the last revision: no process of the new version starts before it has them. Traffic goes on
meanwhile: a revision that waits for a lock, or is in a deadlock with a request, ends itself before the request is ended, and
begins again. An upgrade that was interrupted goes on at the revision that it had reached.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from psycopg import sql
from psycopg.rows import TupleRow
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from berth.process.poolers import PoolerRefused, require_no_pooler
from migrations.functions import FunctionProblem, apply_functions
from migrations.privileges import apply_privileges

HERE = Path(__file__).parent

# Revisions before the baseline; no release had them, so no upgrade leads from them.
REVISIONS_BEFORE_BASELINE = ("0001", "0002", "0003", "0004", "0005", "0006")


TRIES_SECONDS_MAX = 60.0
"""How long one revision gives way to traffic before the upgrade ends."""
PAUSE_SECONDS = 0.2
LOCK_MS_MAX = 100
"""How long a revision waits for a lock. Requests for the same table queue behind it, so they wait as long."""
GAVE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
# A request looks for a deadlock once, a second into its wait. The upgrade looks for one sooner where its role may, and waits
# for less than that second, so that it is never the request that is ended.
_GIVE_WAY = """
select set_config('lock_timeout', :lock_ms, true),
       case when has_parameter_privilege('deadlock_timeout', 'set') then set_config('deadlock_timeout', '10ms', true) end
"""


# In the order in which requests use them: in another one, each try would be in a deadlock with some request.
ORDER_OF_LOCKS = ("operations", "tenants", "tenant_quotas", "kv_namespaces", "nodes", "reservations", "claims")
_LAST_WITHOUT_LOCKS = "0047"
"""Revisions after it name the tables that they lock in `LOCKS`; those up to it take all of `ORDER_OF_LOCKS`."""


_DONE = "done, but for its functions: revision "
"""How the comment of `alembic_version` begins between the tables of the last revision and its functions."""
_DONE_REVISION = "select substring(obj_description('alembic_version'::regclass, 'pg_class') from :begins || '(.*)')"


class _Step(NamedTuple):
    """The revision after one transaction of an upgrade, and whether it is the target."""

    reached: str
    is_last: bool


class SchemaProblem(Exception):
    """The database's schema cannot be used; the message is one sentence that says what to do."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.set_main_option("recursive_version_locations", "true")
    return config


def sqlalchemy_url(database_url: str) -> str:
    """The address with the psycopg 3 driver, the only one that Berth uses."""
    for prefix in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if database_url.startswith(prefix):
            return "postgresql+psycopg://" + database_url.removeprefix(prefix)
    raise SchemaProblem("BERTH_DATABASE_URL must begin with postgresql://")


def head_revision() -> str:
    """The newest revision in this code."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def driver_connection(connection: Connection) -> psycopg.Connection[TupleRow]:
    """The driver's connection: it executes files of several statements, and takes percent signs literally."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def current_revision(database_url: str) -> str | None:
    """The database's revision; None if it is empty. Raises `SchemaProblem` if it is foreign or too new."""
    engine = create_engine(sqlalchemy_url(database_url), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return _judge(connection)
    except OperationalError as error:
        raise SchemaProblem(f"cannot connect to the database: {str(error.orig).strip().splitlines()[0]}") from error
    finally:
        engine.dispose()


def _judge(connection: Connection) -> str | None:
    try:
        require_no_pooler(
            driver_connection(connection), connection.execute(text("select pg_backend_pid()")).scalar_one()
        )
    except PoolerRefused as problem:
        raise SchemaProblem(str(problem)) from problem
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" not in tables:
        if tables:
            names = ", ".join(sorted(tables)[:3])
            raise SchemaProblem(f"this database is not Berth's (it holds {names}); name another in BERTH_DATABASE_URL")
        return None
    revision: str | None = connection.execute(text("select version_num from alembic_version")).scalar()
    if revision in REVISIONS_BEFORE_BASELINE:
        raise SchemaProblem(
            f"the database's schema ({revision}) is from before Berth's first release and cannot be upgraded;"
            " create an empty database and run `berth migrate`"
        )
    if revision is not None:
        try:
            ScriptDirectory.from_config(_config()).get_revision(revision)
        except CommandError as error:
            raise SchemaProblem(
                f"the database's schema ({revision}) is newer than this Berth ({head_revision()}); upgrade Berth"
            ) from error
    return revision


def upgrade(database_url: str, revision: str = "head") -> str:
    """Bring the database to `revision` and its functions to the present files; return the revision it has then.

    Functions are applied with the newest revision only: they may use what that revision creates. Raises `SchemaProblem` also
    for a revision that is unknown, or older than the database's.
    """
    current_revision(database_url)
    target = head_revision() if revision == "head" else _known(revision)
    engine = create_engine(sqlalchemy_url(database_url), poolclass=NullPool)
    try:
        while not (step := _advance(engine, target)).is_last:
            pass
        return step.reached
    except FunctionProblem as error:
        raise SchemaProblem(str(error)) from error
    finally:
        engine.dispose()


def _known(revision: str) -> str:
    if revision not in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}:
        raise SchemaProblem(f"there is no revision {revision}; the newest is {head_revision()}")
    return revision


def _advance(engine: Engine, target: str) -> _Step:
    """One transaction of an upgrade, tried again while it gives way to traffic."""
    deadline = time.monotonic() + TRIES_SECONDS_MAX
    while True:
        try:
            return _advance_once(engine, target)
        except (OperationalError, psycopg.OperationalError) as error:
            cause = error.orig if isinstance(error, OperationalError) else error
            if not isinstance(cause, GAVE_WAY) or time.monotonic() > deadline:
                raise SchemaProblem(f"the migration did not run: {str(cause).strip().splitlines()[0]}") from error
        time.sleep(PAUSE_SECONDS)


def _advance_once(engine: Engine, target: str) -> _Step:
    config = _config()
    with engine.begin() as connection:
        connection.execute(text("select pg_advisory_xact_lock(hashtext('berth.migrate'))"))
        connection.execute(text(_GIVE_WAY), {"lock_ms": f"{LOCK_MS_MAX}ms"})
        current = _judge(connection)
        revision = _next_revision(current, target)
        is_head = revision == head_revision()
        if current is not None and _is_done(connection, revision):
            _note(connection, revision, None)
        else:
            _lock_tables(connection, current, revision)
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            if is_head and current not in (None, revision):
                # To replace the functions takes longer than requests may wait for the tables that are locked now.
                _note(connection, str(current), revision)
                return _Step(str(current), is_last=False)
        if is_head:
            apply_functions(driver_connection(connection))
            apply_privileges(driver_connection(connection))
        reached: str = connection.execute(text("select version_num from alembic_version")).scalar_one()
        return _Step(reached, is_last=revision == target)


def _is_done(connection: Connection, revision: str) -> bool:
    """Whether the tables of this revision are there already."""
    return connection.execute(text(_DONE_REVISION), {"begins": _DONE}).scalar() == revision


def _note(connection: Connection, revision: str, done: str | None) -> None:
    """Note the database's revision, and the one after it if that is done but for its functions."""
    comment = sql.Literal(None if done is None else f"{_DONE}{done}")
    driver_connection(connection).execute(sql.SQL("comment on table alembic_version is {}").format(comment))
    connection.execute(text("update alembic_version set version_num = :revision"), {"revision": revision})


def _next_revision(current: str | None, target: str) -> str:
    """The revision after `current` on the way to `target`; `target` for an empty database, which has no traffic."""
    if current is None or current == target:
        return target
    if current > target:
        raise SchemaProblem(f"the database's schema ({current}) is newer than {target}; it rolls forward only")
    return [script.revision for script in ScriptDirectory.from_config(_config()).iterate_revisions(target, current)][-1]


def _lock_tables(connection: Connection, current: str | None, revision: str) -> None:
    """Take the locks of a revision in the order of requests, before it takes any by what it alters."""
    if current in (None, revision):
        return
    script = ScriptDirectory.from_config(_config()).get_revision(revision)
    earlier = ORDER_OF_LOCKS if revision <= _LAST_WITHOUT_LOCKS else ()
    tables: tuple[str, ...] = getattr(script.module, "LOCKS", earlier)
    for table in tables:
        driver_connection(connection).execute(
            sql.SQL("lock table {} in access exclusive mode").format(sql.Identifier(table))
        )
