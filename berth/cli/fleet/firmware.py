"""`berth firmware`: the accepted firmware of models of machines, compared at each release (admin keys only)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from berth.cli.commands.nodes import Name
from berth.cli.endings import FAILED, USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from berth.client import AcceptedFirmware

app = typer.Typer(no_args_is_help=True, help="Accepted firmware of models of machines (admin keys only).")


def _shown(one: AcceptedFirmware) -> str:
    model = "" if one.model is None else f" ({one.model})"
    return f"{one.component}{model}: {', '.join(one.versions)}"


COLUMNS: list[Column] = [
    ("id", lambda f: f.id), ("vendor", lambda f: f.vendor), ("product", lambda f: f.product),
    ("accepted", lambda f: "; ".join(map(_shown, f.components))),
    ("changed at", lambda f: f.changed_at), ("by", lambda f: f.changed_by),
]  # fmt: skip


@command(app, "list")
def list_lists(session: Session) -> None:
    """List the accepted firmware of each model."""
    with session.client() as client:
        show_list(session, client.iterate_firmware_lists(), COLUMNS, empty="no lists")


@command(app, "put")
def put(
    session: Session,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON with vendor, product and components, as `show` prints it; `-`: standard input"
        ),
    ],
) -> None:
    """Set the accepted firmware of a model of machines; it replaces the list before, and counts at the next release."""
    content = _read(file)
    with session.client() as client:
        show_one(session, client.put_firmware_list(**content), COLUMNS)


def _read(path: Path) -> JsonObject:
    try:
        found = json.loads(sys.stdin.read() if str(path) == "-" else path.read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: cannot be read as JSON: {error}", code="usage", exit_code=USAGE) from error
    if not isinstance(found, dict) or set(found) != {"vendor", "product", "components"}:
        raise Refused(
            f"{path}: needs an object with vendor, product and components, and nothing else",
            code="usage",
            exit_code=USAGE,
        )
    parts = found["components"]
    if not isinstance(parts, list) or not all(isinstance(one, dict) for one in parts):
        raise Refused(f"{path}: components must be a list of objects", code="usage", exit_code=USAGE)
    return found


@command(app, "remove")
def remove(session: Session, list_id: Annotated[UUID, typer.Argument(metavar="ID", help="id of the list")]) -> None:
    """Remove the list of a model: its releases compare with the inspection alone."""
    with session.client() as client:
        client.delete_firmware_list(list_id)
    session.console.print(f"the list {list_id} is removed", markup=False)


@command(app, "show")
def show(session: Session, node: Name) -> None:
    """Print what the last inspection of a node's machine read, as a list that `berth firmware put` takes."""
    with session.client() as client:
        machine = client.get_deploy_system(client.get_node(node).id).machine
    if machine is None:
        raise Refused(
            f"the machine of {node} was not inspected: berth node inspect", code="not_found", exit_code=FAILED
        )
    stated = machine["report"]["topology"].get("firmware") or {}
    read = [*(machine.get("firmware") or []), *(machine.get("bmc_firmware") or [])]
    made = {"vendor": stated.get("vendor"), "product": stated.get("product"), "components": _accepted(read)}
    session.console.print_json(json.dumps(made))


def _accepted(found: list[JsonObject]) -> list[JsonObject]:
    """One entry for each component and model; of BIOS and BMC, which a machine has once, without a model."""
    entries: dict[tuple[str, str | None], set[str]] = {}
    for one in found:
        model = None if one["component"] in ("bios", "bmc") else one.get("model")
        entries.setdefault((one["component"], model), set()).add(one["version"])
    return [
        {"component": component, **({} if model is None else {"model": model}), "versions": sorted(versions)}
        for (component, model), versions in entries.items()
    ]
