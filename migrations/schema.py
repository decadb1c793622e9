"""Moves a database to a revision, or says in one sentence why it cannot.

Migrations run one at a time (a transaction-level advisory lock), each in its own transaction, with a lock timeout, so
that a migration which waits behind traffic gives up instead of stopping it (TRAPS, PostgreSQL).
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

HERE = Path(__file__).parent


class SchemaProblem(Exception):
    """The database's schema cannot be used; the message is one sentence that says what to do."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    return config


def sqlalchemy_url(database_url: str) -> str:
    """The same address with the psycopg 3 driver named, which is the only driver we use."""
    for prefix in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if database_url.startswith(prefix):
            return "postgresql+psycopg://" + database_url.removeprefix(prefix)
    raise SchemaProblem("BERTH_DATABASE_URL must begin with postgresql://")


def head_revision() -> str:
    """The newest revision that this code knows."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


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
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" not in tables:
        if tables:
            names = ", ".join(sorted(tables)[:3])
            raise SchemaProblem(f"this database is not Berth's (it holds {names}); name another in BERTH_DATABASE_URL")
        return None
    revision: str | None = connection.execute(text("select version_num from alembic_version")).scalar()
    if revision is not None:
        try:
            ScriptDirectory.from_config(_config()).get_revision(revision)
        except CommandError as error:
            raise SchemaProblem(
                f"the database's schema ({revision}) is newer than this Berth ({head_revision()}); upgrade Berth"
            ) from error
    return revision


def upgrade(database_url: str, revision: str = "head") -> str:
    """Bring the database to `revision` and answer the revision it is at."""
    return _move(database_url, revision, up=True)


def downgrade(database_url: str, revision: str) -> str | None:
    """Take the database down to `revision` (`base` removes everything of Berth's, data included)."""
    return _move(database_url, revision, up=False) or None


def _move(database_url: str, revision: str, *, up: bool) -> str:
    current_revision(database_url)
    config = _config()
    engine = create_engine(sqlalchemy_url(database_url), poolclass=NullPool)
    try:
        with engine.begin() as connection:
            connection.execute(text("select pg_advisory_xact_lock(hashtext('berth.migrate'))"))
            connection.execute(text("set local lock_timeout = '10s'"))
            config.attributes["connection"] = connection
            if up:
                command.upgrade(config, revision)
            else:
                command.downgrade(config, revision)
            if not inspect(connection).has_table("alembic_version"):
                return ""
            return connection.execute(text("select version_num from alembic_version")).scalar() or ""
    except OperationalError as error:
        raise SchemaProblem(f"the migration did not run: {str(error.orig).strip().splitlines()[0]}") from error
    finally:
        engine.dispose()
