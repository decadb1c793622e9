"""Upgrades a database to a revision and to the present SQL functions, or raises one sentence that says why it cannot.

Upgrades run one at a time (a transaction-level advisory lock), in one transaction. Traffic goes on meanwhile: an upgrade that
waits for a lock, or is in a deadlock with a request, ends itself before the request is ended, and begins again.
"""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
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


TRIES_SECONDS_MAX = 10.0
PAUSE_SECONDS = 0.2
GAVE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
# A request looks for a deadlock once, a second into its wait. The upgrade looks for one sooner where its role may, and waits
# for less than that second, so that it is never the request that is ended.
_GIVE_WAY = """
select set_config('lock_timeout', '500ms', true),
       case when has_parameter_privilege('deadlock_timeout', 'set') then set_config('deadlock_timeout', '10ms', true) end
"""
# In the order in which requests use them: in another one, each try would be in a deadlock with some request.
_LOCK_IN_ORDER = """
lock table operations, tenants, tenant_quotas, kv_namespaces, nodes, reservations, claims in access exclusive mode
"""


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

    Functions are applied at the newest revision only: they may use what that revision creates.
    """
    current_revision(database_url)
    engine = create_engine(sqlalchemy_url(database_url), poolclass=NullPool)
    deadline = time.monotonic() + TRIES_SECONDS_MAX
    try:
        while True:
            try:
                return _upgrade_once(engine, revision)
            except (OperationalError, psycopg.OperationalError) as error:
                cause = error.orig if isinstance(error, OperationalError) else error
                if not isinstance(cause, GAVE_WAY) or time.monotonic() > deadline:
                    raise SchemaProblem(f"the migration did not run: {str(cause).strip().splitlines()[0]}") from error
            time.sleep(PAUSE_SECONDS)
    except FunctionProblem as error:
        raise SchemaProblem(str(error)) from error
    finally:
        engine.dispose()


def _upgrade_once(engine: Engine, revision: str) -> str:
    config = _config()
    with engine.begin() as connection:
        connection.execute(text("select pg_advisory_xact_lock(hashtext('berth.migrate'))"))
        connection.execute(text(_GIVE_WAY))
        if _judge(connection) not in (None, head_revision()):
            connection.execute(text(_LOCK_IN_ORDER))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        reached: str = connection.execute(text("select version_num from alembic_version")).scalar_one()
        if reached == head_revision():
            apply_functions(driver_connection(connection))
            apply_privileges(driver_connection(connection))
        return reached
