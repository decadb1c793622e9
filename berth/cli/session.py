"""What every command receives: where to connect and how to print. `endings` maps errors to exit codes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NoReturn, ParamSpec
from uuid import UUID

import typer
from pydantic import ValidationError

from berth.cli.access.logins import read_login
from berth.cli.endings import INTERRUPTED, UNREACHABLE, USAGE, Ending, Refused, ending_of
from berth.cli.known_stack import KnownStack, read_stack
from berth.cli.settings import Settings
from berth.cli.terminal import Terminal, visible

if TYPE_CHECKING:
    from berth.client import Client

Arguments = ParamSpec("Arguments")

TenantOption = Annotated[str | None, typer.Option("--tenant", help="owner's id or name (admin keys only)")]
"""The tenant, for an operator's key; `Session.tenant_id` finds its id."""

# A person waits for the command: give up soon if the server is not there.
RETRY_SECONDS = 3.0


class Output(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs")]
StateDirOption = Annotated[
    Path | None,
    typer.Option("--state-dir", help="state directory of the local stack [env: BERTH_STATE_DIR; default: var]"),
]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure-http", help="send the key over http:// to any address [env: BERTH_INSECURE_HTTP]"),
]


class Session:
    """One run of one command."""

    def __init__(self, output: Output, state_dir: Path | None, *, insecure_http: bool = False) -> None:
        self.output = output
        self.settings = Settings()
        self.insecure_http = insecure_http or self.settings.insecure_http
        self.state_dir = state_dir or self.settings.state_dir
        self.state_dir_is_named = state_dir is not None or "state_dir" in self.settings.model_fields_set
        self.console = Terminal(highlight=False)
        self.errors = Terminal(stderr=True, highlight=False)

    @property
    def json(self) -> bool:
        """Whether to print JSON."""
        return self.output is Output.JSON

    @functools.cached_property
    def stack(self) -> KnownStack:
        """The stack that the state directory describes."""
        return read_stack(self.state_dir)

    def address(self) -> str:
        """The address of the named API, or of the stack in the state directory. Raises `Refused` if none is known."""
        address = self.settings.api_url or self.stack.api_url
        if address is None:
            raise Refused(
                f"no API is known: start the local stack with `berth up`, name its state directory with --state-dir "
                f"(looked in {self.state_dir}), or set BERTH_API_URL and BERTH_API_KEY",
                code="no_api",
                exit_code=UNREACHABLE,
            )
        return address

    def client(self) -> Client:
        """A client for the named API, with the key, the token of `berth login`, or the admin key of the stack."""
        address = self.address()
        key: str | Callable[[], str] | None = self.settings.api_key
        if key is None and read_login(address) is not None:
            from berth.cli.access.login import live_token

            key = functools.partial(live_token, address)
        if key is None and address.rstrip("/") == (self.stack.api_url or "").rstrip("/"):
            # The stack's admin key goes to the stack's own address and nowhere else.
            key = self.stack.admin_key
        if key is None:
            raise Refused(f"no key for {address}: set BERTH_API_KEY, or run `berth login`", code="no_key")
        # Start-up stays light for the commands that do not call the API.
        from berth.client import Client

        return Client(address, key, retry_seconds=RETRY_SECONDS, insecure_http=self.insecure_http)

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

    def tenant_id(self, client: Client, tenant: str | None, *, existing: bool = False) -> UUID | None:
        """The id of a tenant named by id or name; None for None. Raises `Refused` for an unknown name.

        An id is used as given; with `existing` it is looked up, which only an operator may do, and an unknown one raises
        `NotFound`.
        """
        if tenant is None:
            return None
        if not tenant.strip():
            raise Refused("--tenant is empty; give the tenant's id or name", code="usage", exit_code=USAGE)
        try:
            named = UUID(tenant)
        except ValueError:
            for candidate in client.iterate_tenants():
                if candidate.name == tenant:
                    return candidate.id
            raise Refused(
                f"there is no tenant named {tenant}; `berth tenant list` shows them", code="not_found"
            ) from None
        return client.get_tenant(named).id if existing else named


def name_open_write(session: Session, interrupt: KeyboardInterrupt) -> None:
    """Print the key of a write that was interrupted, so that its outcome can be requested."""
    for note in getattr(interrupt, "__notes__", ()):
        sentence = (
            f"berth: interrupted while the request was in progress; {note}; `berth operations show` shows its outcome"
        )
        session.errors.print(sentence, style="red", markup=False, soft_wrap=True)


def end_with(session: Session, ending: Ending) -> NoReturn:
    """Print what went wrong, once, and exit."""
    printed = False
    if session.json:
        content = {"error": {"code": ending.code, "detail": ending.detail, **ending.extra}}
        with contextlib.suppress(OSError):  # the output itself may be what failed
            session.console.print_json(data=content, default=str)
            printed = True
    if not printed:
        session.errors.print(f"berth: {visible(ending.detail)}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(ending.exit_code)


def command(
    app: typer.Typer, name: str, **typer_arguments: Any
) -> Callable[[Callable[Concatenate[Session, Arguments], None]], Callable[Concatenate[Session, Arguments], None]]:
    """Register a function as a command: it gets a `Session`, the options of every command, and named exit codes."""

    def register(
        function: Callable[Concatenate[Session, Arguments], None],
    ) -> Callable[Concatenate[Session, Arguments], None]:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]
        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter("state_dir", keyword, default=None, annotation=StateDirOption),
            inspect.Parameter("output", keyword, default=Output.TEXT, annotation=OutputOption),
            inspect.Parameter("insecure_http", keyword, default=False, annotation=InsecureOption),
        ]

        def run(**arguments: Any) -> None:
            output, state_dir = arguments.pop("output"), arguments.pop("state_dir")
            insecure_http = arguments.pop("insecure_http")
            try:
                session = Session(output, state_dir, insecure_http=insecure_http)
            except ValidationError as error:
                fields = ", ".join(f"BERTH_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
                typer.echo(f"berth: unusable environment: {fields}", err=True)
                raise typer.Exit(USAGE) from error
            try:
                function(session, **arguments)  # type: ignore[call-arg]
            except BrokenPipeError:
                # The reader closed the pipe: it has enough, and no output can reach it.
                os._exit(0)
            except KeyboardInterrupt as interrupt:
                name_open_write(session, interrupt)
                raise typer.Exit(INTERRUPTED) from interrupt
            except (typer.Exit, typer.Abort):
                raise
            except Exception as error:
                ending = ending_of(error)
                if ending is None:
                    raise
                end_with(session, ending)

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        parameters = [p.replace(kind=keyword) for p in own] + added
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name, **typer_arguments)(run)
        return function

    return register
