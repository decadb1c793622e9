"""What every command gets: where to connect, how to print, and which exit code an error becomes.

Exit codes: 0 done; 1 refused, failed, or a check found something; 2 wrong usage; 3 a server cannot be reached;
4 the outcome of a write is unknown; 5 the time to wait was up; 130 interrupted.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Concatenate, NoReturn, ParamSpec
from uuid import UUID

import psycopg
import typer
from pydantic import ValidationError
from rich.console import Console

from berth.client import BerthError, Client, NotFound, OutcomeUnknown, Overloaded, Unavailable, WaitTimeout
from berth.local.endpoint_file import KnownStack, read_stack
from berth.local.servers import ServerProblem
from berth.local.settings import Settings
from berth.local.state import StackProblem
from migrations import SchemaProblem

Arguments = ParamSpec("Arguments")

# Somebody sits in front of it: do not keep them waiting for a server that is not there.
RETRY_SECONDS = 3.0

FAILED, USAGE, UNREACHABLE, UNKNOWN, TIMED_OUT, INTERRUPTED = 1, 2, 3, 4, 5, 130


class Output(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


class Refused(Exception):
    """A command cannot do what was asked; the message says what to do. `code` is stable, for `--output json`."""

    def __init__(self, detail: str, *, code: str = "failed", exit_code: int = FAILED) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.exit_code = exit_code


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs")]
StateDirOption = Annotated[
    Path | None,
    typer.Option("--state-dir", help="state directory of the local stack [env: BERTH_STATE_DIR; default: var]"),
]


class Session:
    """One run of one command."""

    def __init__(self, output: Output, state_dir: Path | None) -> None:
        self.output = output
        self.settings = Settings()
        self.state_dir = state_dir or self.settings.state_dir
        self.console = Console(highlight=False)
        self.errors = Console(stderr=True, highlight=False)

    @property
    def json(self) -> bool:
        """Whether to print JSON."""
        return self.output is Output.JSON

    @functools.cached_property
    def stack(self) -> KnownStack:
        """What the state directory tells about its stack."""
        return read_stack(self.state_dir)

    def client(self) -> Client:
        """A client for the named API, or for the stack in the state directory with its admin key."""
        address = self.settings.api_url or self.stack.api_url
        if address is None:
            raise Refused(
                f"no API is known: start the local stack with `berth up`, name its state directory with --state-dir "
                f"(looked in {self.state_dir}), or set BERTH_API_URL and BERTH_API_KEY",
                code="no_api",
                exit_code=UNREACHABLE,
            )
        key = self.settings.api_key
        if key is None and address.rstrip("/") == (self.stack.api_url or "").rstrip("/"):
            # The stack's admin key goes to the stack's own address and nowhere else.
            key = self.stack.admin_key
        if key is None:
            raise Refused(f"no key for {address}: set BERTH_API_KEY", code="no_key")
        return Client(address, key, retry_seconds=RETRY_SECONDS)

    def database_url(self) -> str:
        """The database, for the commands that read it directly."""
        found = self.settings.database_url or self.stack.database_url
        if found is None:
            raise Refused(
                f"no database is known: set BERTH_DATABASE_URL or name a --state-dir (looked in {self.state_dir})",
                code="no_database",
                exit_code=UNREACHABLE,
            )
        return found

    def nats_url(self) -> str | None:
        """The NATS server, if one is known."""
        return self.settings.nats_url or self.stack.nats_url

    def tenant_id(self, client: Client, tenant: str | None) -> UUID | None:
        """The id of a tenant named by id or name; None for None. Raises `Refused` for an unknown name."""
        if tenant is None:
            return None
        try:
            return UUID(tenant)
        except ValueError:
            for candidate in client.iterate_tenants():
                if candidate.name == tenant:
                    return candidate.id
        raise Refused(f"there is no tenant called {tenant}; `berth tenant list` shows them", code="not_found")


def exit_with(session: Session, code: int, error_code: str, detail: str, **extra: Any) -> NoReturn:
    """Say what went wrong, once, and end."""
    if session.json:
        session.console.print_json(data={"error": {"code": error_code, "detail": detail, **extra}}, default=str)
    else:
        session.errors.print(f"berth: {detail}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(code)


def _advice(error: BerthError) -> str:
    if isinstance(error, Unavailable) and error.code == "unreachable":
        return "; is the stack running? `berth doctor` tells more"
    if error.code == "unauthenticated":
        return "; check BERTH_API_KEY, or make a key with `berth key create`"
    if error.code == "forbidden":
        return "; name it with --tenant" if "tenant_id" in error.detail else "; this needs an admin key"
    if isinstance(error, NotFound):
        return "; with an admin key, name the owner with --tenant"
    if error.outcome == "unknown" and "idempotency_key" in error.extra:
        return f"; repeat with the idempotency key {error.extra['idempotency_key']} to find out"
    fields = error.extra.get("errors")
    if isinstance(fields, list) and fields:
        return ": " + "; ".join(f"{entry.get('field')}: {entry.get('message')}" for entry in fields)
    return ""


def _end(session: Session, error: Exception) -> NoReturn:
    if isinstance(error, BerthError):
        code = FAILED
        if isinstance(error, OutcomeUnknown):
            code = UNKNOWN
        elif isinstance(error, Unavailable | Overloaded):
            code = UNREACHABLE
        elif isinstance(error, WaitTimeout):
            code = TIMED_OUT
        extra = {key: value for key, value in error.extra.items() if key != "allocation"}
        detail = error.detail.rstrip(".") + _advice(error)
        exit_with(session, code, error.code, detail, outcome=error.outcome, status=error.status, **extra)
    if isinstance(error, Refused):
        exit_with(session, error.exit_code, error.code, error.detail)
    if isinstance(error, SchemaProblem):
        exit_with(session, UNREACHABLE if "cannot connect" in str(error) else FAILED, "schema", str(error))
    if isinstance(error, psycopg.OperationalError):
        reason = str(error).strip().splitlines()[0]
        exit_with(session, UNREACHABLE, "database_unreachable", f"cannot use the database: {reason}")
    if isinstance(error, psycopg.Error):
        reason = str(error).strip().splitlines()[0]
        exit_with(session, FAILED, "database_error", f"the database refused: {reason}; is it at the newest schema?")
    if isinstance(error, StackProblem | ServerProblem):
        exit_with(session, FAILED, "stack", str(error))
    if isinstance(error, OSError):
        exit_with(session, FAILED, "system", f"{error.filename or 'system'}: {error.strerror or error}")
    raise error


FORESEEN = (BerthError, Refused, SchemaProblem, psycopg.Error, StackProblem, ServerProblem, OSError)


def command(
    app: typer.Typer, name: str, **typer_arguments: Any
) -> Callable[[Callable[Concatenate[Session, Arguments], None]], Callable[Concatenate[Session, Arguments], None]]:
    """Register a function as a command: it gets a `Session`, `--output` and `--state-dir`, and named exit codes."""

    def register(
        function: Callable[Concatenate[Session, Arguments], None],
    ) -> Callable[Concatenate[Session, Arguments], None]:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]
        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter("state_dir", keyword, default=None, annotation=StateDirOption),
            inspect.Parameter("output", keyword, default=Output.TEXT, annotation=OutputOption),
        ]

        def run(**arguments: Any) -> None:
            output, state_dir = arguments.pop("output"), arguments.pop("state_dir")
            try:
                session = Session(output, state_dir)
            except ValidationError as error:
                fields = ", ".join(f"BERTH_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
                typer.echo(f"berth: unusable environment: {fields}", err=True)
                raise typer.Exit(USAGE) from error
            try:
                function(session, **arguments)  # type: ignore[call-arg]
            except BrokenPipeError:
                # Whoever read our output has enough; there is nobody left to tell.
                os._exit(0)
            except KeyboardInterrupt as interrupt:
                raise typer.Exit(INTERRUPTED) from interrupt
            except FORESEEN as error:
                _end(session, error)

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        parameters = [p.replace(kind=keyword) for p in own] + added
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name, **typer_arguments)(run)
        return function

    return register
