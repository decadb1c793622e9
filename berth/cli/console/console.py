"""`berth alloc console`: the log of an allocation's serial console, or the console itself.

What a guest prints goes to the person's terminal as it is while attached: that is what a console is. It may contain control
sequences of whatever the guest wants to try. The log is printed with them made visible, unless it goes to a file or a pipe.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Annotated
from uuid import UUID

import typer

from berth.cli.endings import FAILED, UNREACHABLE, USAGE, Refused
from berth.cli.session import Session
from berth.cli.terminal import visible_lines

SIGNALLED = 128
"""Added to the number of a signal that ended the program, as shells do."""
ORDINARY = frozenset({"left", "input_ended", "tenant_ended"})
RETRY = frozenset({"agent_absent", "agent_lost", "process_lost", "stopping", "connection_lost"})


def console(
    session: Session,
    allocation_id: Annotated[UUID, typer.Argument(help="the allocation's id")],
    attach: Annotated[
        bool,
        typer.Option("--attach", help="type into the console; Ctrl-] leaves. What the guest prints is not filtered"),
    ] = False,
    stdin: Annotated[
        bool,
        typer.Option("--stdin", help="with --attach: send standard input that is no terminal, without an escape key"),
    ] = False,
    offset: Annotated[
        int | None, typer.Option(help="where to begin in the log; negative: from its end. Default: the last 64 KiB")
    ] = None,
    bytes_max: Annotated[int | None, typer.Option("--bytes", min=1, help="most bytes of the log")] = None,
) -> None:
    """Print the log of the serial console, or attach to it."""
    if attach:
        if offset is not None or bytes_max is not None:
            raise Refused("--offset and --bytes are for the log, without --attach", code="usage", exit_code=USAGE)
        _attach(session, allocation_id, stdin=stdin)
        return
    if stdin:
        raise Refused("--stdin goes with --attach", code="usage", exit_code=USAGE)
    with session.client() as client:
        log = client.read_console_log(allocation_id, offset=offset, bytes_max=bytes_max)
    if session.json:
        session.console.print_json(data=log.model_dump(mode="json"))
    elif os.isatty(sys.stdout.fileno()):
        sys.stdout.write(visible_lines(log.content.decode(errors="replace").replace("\r\n", "\n")))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(log.content)
        sys.stdout.buffer.flush()


def _attach(session: Session, allocation_id: UUID, *, stdin: bool) -> None:
    """Raises `Refused` for a standard input that does not fit, and for an end that is no ordinary one."""
    # Loaded late: start-up stays light, and other systems than POSIX have no termios.
    from berth.cli.console.joining import Joined
    from berth.cli.console.terminal_mode import Ended, note, raw

    read_from, write_to = sys.stdin.fileno(), sys.stdout.fileno()
    interactive = os.isatty(read_from)
    if not interactive and not stdin:
        raise Refused("standard input is no terminal; add --stdin to send it", code="usage", exit_code=USAGE)
    if interactive and stdin:
        raise Refused("standard input is a terminal; leave --stdin out", code="usage", exit_code=USAGE)
    try:
        with session.client() as client, client.attach_console(allocation_id) as socket:
            note("waiting for the node")
            with raw(read_from) if interactive else nullcontext():
                ending = Joined(socket, read_from, write_to, interactive=interactive).run()
    except Ended as ended:
        raise typer.Exit(SIGNALLED + ended.number) from ended
    note(f"the session has ended: {ending.detail}")
    if ending.reason not in ORDINARY:
        raise typer.Exit(UNREACHABLE if ending.reason in RETRY else FAILED)
