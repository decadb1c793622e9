"""`berth image`: the images of the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.cli.commands.catalogue import NameArgument, State
from berth.cli.commands.nodes import Shape
from berth.cli.images.statement import (
    CloudInitOption,
    DiskBytesMinOption,
    FabricManagerOption,
    FirmwareOption,
    FormatOption,
    GpuDriverOption,
    LoginUserOption,
    ReadinessOption,
    ReadinessPortOption,
    read_statement,
)
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

app = typer.Typer(no_args_is_help=True, help="Images that nodes boot.")

OFFERED_IMAGE: list[Column] = [
    ("name", lambda i: i.name), ("shapes", lambda i: i.shapes), ("gpu models", lambda i: i.gpu_models or "any"),
    ("regions", lambda i: i.regions or "all"), ("login user", lambda i: i.statement.login_user),
    ("cloud-init", lambda i: i.statement.cloud_init), ("gpu driver", lambda i: i.statement.gpu_driver_version),
    ("sha256", lambda i: i.sha256),
]  # fmt: skip
LISTED_IMAGE: list[Column] = [*OFFERED_IMAGE, ("state", lambda i: i.state), ("url", lambda i: i.url)]
IMAGE: list[Column] = [
    *LISTED_IMAGE, ("format", lambda i: i.statement.format), ("firmware", lambda i: i.statement.firmware),
    ("readiness", lambda i: i.statement.readiness), ("readiness port", lambda i: i.statement.readiness_port),
    ("smallest disk", lambda i: i.statement.disk_bytes_min), ("size", lambda i: i.statement.size_bytes),
    ("fabric manager", lambda i: i.statement.fabric_manager_version),
]  # fmt: skip


@command(app, "put")
def put_image(
    session: Session,
    name: NameArgument,
    url: Annotated[str, typer.Option(help="URL from which nodes download it")],
    sha256: Annotated[str, typer.Option(help="SHA-256 of the file, in hex; nodes verify it")],
    shape: Annotated[list[Shape], typer.Option(help="a shape that may boot it, repeatable")],
    gpu_model: Annotated[list[str] | None, typer.Option(help="repeatable; default: any")] = None,
    region: Annotated[list[str] | None, typer.Option(help="repeatable; default: every region")] = None,
    state: Annotated[State | None, typer.Option(help="retired: no new allocations")] = None,
    form: FormatOption = None,
    firmware: FirmwareOption = None,
    login_user: LoginUserOption = None,
    cloud_init: CloudInitOption = None,
    readiness: ReadinessOption = None,
    readiness_port: ReadinessPortOption = None,
    disk_bytes_min: DiskBytesMinOption = None,
    gpu_driver: GpuDriverOption = None,
    fabric_manager: FabricManagerOption = None,
) -> None:
    """Create or change an image (admin keys only). It keeps its statement unless an option from --format on is given."""
    statement = read_statement(
        format=form, firmware=firmware, login_user=login_user, cloud_init=cloud_init, readiness=readiness,
        readiness_port=readiness_port, disk_bytes_min=disk_bytes_min, gpu_driver_version=gpu_driver,
        fabric_manager_version=fabric_manager,
    )  # fmt: skip
    with session.client() as client:
        made = client.put_image(
            name, url=url, sha256=sha256, shapes=[one.value for one in shape], gpu_models=gpu_model or None,
            regions=region or None, state=state.value if state else None, statement=statement,
        )  # fmt: skip
        show_one(session, made, IMAGE)


@command(app, "list")
def list_images(
    session: Session,
    every: Annotated[
        bool, typer.Option("--all", help="with retired images, states and URLs (admin keys only)")
    ] = False,
) -> None:
    """List the images that a create may name."""
    with session.client() as client:
        if every:
            show_list(session, client.iterate_all_images(), LISTED_IMAGE)
        else:
            show_list(session, client.iterate_images(), OFFERED_IMAGE)


@command(app, "show")
def show_image(session: Session, name: NameArgument) -> None:
    """Show one image (admin keys only)."""
    with session.client() as client:
        show_one(session, client.get_image(name), IMAGE)


@command(app, "delete")
def delete_image(session: Session, name: NameArgument) -> None:
    """Delete an image that nothing needs (admin keys only). Retire it first, so that nothing new uses it."""
    with session.client() as client:
        client.delete_image(name)
    if session.json:
        session.console.print_json(data={"name": name, "deleted": True})
    else:
        session.console.print(f"{name} is deleted", markup=False)
