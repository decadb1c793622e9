"""`berth migrate` and `berth admin-key create`: what a new deployment needs before its API can be asked."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.session import Session, command

admin_keys = typer.Typer(no_args_is_help=True, help="The first admin key, made directly in the database.")


def migrate(session: Session, to: Annotated[str, typer.Option(help="revision; default: the newest")] = "head") -> None:
    """Bring the database to the newest schema. Safe to repeat; never touches a database that is not Berth's."""
    # Alembic and SQLAlchemy, for this command alone: start-up stays light for all others.
    import migrations

    url = session.database_url()
    before = migrations.current_revision(url)
    after = migrations.upgrade(url, to)
    if session.json:
        session.console.print_json(data={"before": before, "after": after})
    elif before == after:
        session.console.print(f"the schema is at {after} already")
    else:
        session.console.print(f"the schema went from {before or 'nothing'} to {after}")


@command(admin_keys, "create")
def create(session: Session, name: Annotated[str, typer.Option(help="what it is for")]) -> None:
    """Make an admin key without the API. It is shown once; later ones come from `berth key create --role admin`."""
    # psycopg, for this command alone: start-up stays light for all others.
    from berth.cli.deployment.admin_key import create_admin_key

    key = create_admin_key(session.database_url(), name)
    if session.json:
        session.console.print_json(data={"name": name, "role": "admin", "key": key})
    else:
        typer.echo(key)
