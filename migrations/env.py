"""Alembic's entry: runs the migrations on the connection that `migrations.upgrading` passes."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], target_metadata=None, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
