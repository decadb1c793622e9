"""Which PostgreSQL a state directory holds: one server or a cluster. The other kind would begin with an empty database."""

from __future__ import annotations

from berth.cli.known_stack import StackProblem
from berth.local.state import StateDirectory

CLUSTER_DIRECTORY, SERVER_DIRECTORY = "postgres-ha", "postgres"


def require_layout(state: StateDirectory, *, ha: bool, outside: bool, fresh: bool = False) -> None:
    """Raise `StackProblem` if the directory holds the other kind, or a cluster is asked for what it does not do.

    `outside`: PostgreSQL is named by its address. `fresh`: what the directory holds is deleted first.
    """
    if ha and outside:
        raise StackProblem(
            "--ha starts three PostgreSQL servers, and a database URL names another: leave one of them out"
        )
    if fresh:
        return
    if ha and (state.path / SERVER_DIRECTORY).exists():
        raise StackProblem(
            f"{state.path} holds a stack with one PostgreSQL server; start it without --ha, or name another --state-dir"
        )
    if not ha and not outside and (state.path / CLUSTER_DIRECTORY).exists():
        raise StackProblem(
            f"{state.path} holds a stack with three PostgreSQL servers; start it with --ha, or name another --state-dir"
        )
