"""Alembic's entry: runs the migrations on the connection handed in, or on BERTH_DATABASE_URL when called by hand."""

import os

from alembic import context
from sqlalchemy import Connection, create_engine

from migrations.schema import sqlalchemy_url


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=None, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()


handed_in = context.config.attributes.get("connection")
if handed_in is not None:
    _run(handed_in)
else:
    with create_engine(sqlalchemy_url(os.environ["BERTH_DATABASE_URL"])).begin() as own:
        _run(own)
