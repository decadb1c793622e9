"""`berth sku`, `berth image`, `berth region`: the catalogue."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from berth.cli.commands.nodes import Shape
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command

skus = typer.Typer(no_args_is_help=True, help="SKUs: the products that tenants rent.")
images = typer.Typer(no_args_is_help=True, help="Images that nodes boot.")
regions = typer.Typer(no_args_is_help=True, help="Regions: the locations of nodes.")

SKU: list[Column] = [
    ("name", lambda s: s.name), ("shape", lambda s: s.shape), ("gpu model", lambda s: s.gpu_model),
    ("counts", lambda s: s.allowed_counts), ("image", lambda s: s.default_image),
    ("price/GPU s", lambda s: f"{s.price_micro_per_gpu_second / 1e6:.6f}"), ("state", lambda s: s.state),
]  # fmt: skip
OFFERED_IMAGE: list[Column] = [
    ("name", lambda i: i.name), ("shapes", lambda i: i.shapes), ("gpu models", lambda i: i.gpu_models or "any"),
    ("regions", lambda i: i.regions or "all"), ("sha256", lambda i: i.sha256),
]  # fmt: skip
IMAGE: list[Column] = [*OFFERED_IMAGE, ("state", lambda i: i.state), ("url", lambda i: i.url)]
REGION: list[Column] = [("name", lambda r: r.name), ("display name", lambda r: r.display_name)]

NameArgument = Annotated[str, typer.Argument(help="unique name")]


class State(StrEnum):
    """Whether new allocations may use it."""

    ACTIVE = "active"
    RETIRED = "retired"


@command(skus, "put")
def put_sku(
    session: Session,
    name: NameArgument,
    shape: Annotated[Shape, typer.Option(help="whole nodes or slices")],
    gpu_model: Annotated[str, typer.Option(help="the GPU model that the nodes report")],
    count: Annotated[list[int], typer.Option(help="an allowed number of GPUs, repeatable", min=1)],
    default_image: Annotated[str | None, typer.Option(help="image to boot if a create names none")] = None,
    price: Annotated[int | None, typer.Option(help="micro-units per GPU and second", min=0)] = None,
    state: Annotated[State | None, typer.Option(help="retired: no new allocations")] = None,
) -> None:
    """Create or change a SKU (admin keys only)."""
    with session.client() as client:
        made = client.put_sku(
            name, shape=shape.value, gpu_model=gpu_model, allowed_counts=count, default_image=default_image,
            price_micro_per_gpu_second=price, state=state.value if state else None,
        )  # fmt: skip
        show_one(session, made, SKU)


@command(skus, "list")
def list_skus(session: Session) -> None:
    """List the SKUs."""
    with session.client() as client:
        show_list(session, client.iterate_skus(), SKU)


@command(images, "put")
def put_image(
    session: Session,
    name: NameArgument,
    url: Annotated[str, typer.Option(help="URL from which nodes download it")],
    sha256: Annotated[str, typer.Option(help="SHA-256 of the file, in hex; nodes verify it")],
    shape: Annotated[list[Shape], typer.Option(help="a shape that may boot it, repeatable")],
    gpu_model: Annotated[list[str] | None, typer.Option(help="repeatable; default: any")] = None,
    region: Annotated[list[str] | None, typer.Option(help="repeatable; default: every region")] = None,
    state: Annotated[State | None, typer.Option(help="retired: no new allocations")] = None,
) -> None:
    """Create or change an image (admin keys only)."""
    with session.client() as client:
        made = client.put_image(
            name, url=url, sha256=sha256, shapes=[one.value for one in shape], gpu_models=gpu_model or None,
            regions=region or None, state=state.value if state else None,
        )  # fmt: skip
        show_one(session, made, IMAGE)


@command(images, "list")
def list_images(
    session: Session,
    every: Annotated[
        bool, typer.Option("--all", help="with retired images, states and URLs (admin keys only)")
    ] = False,
) -> None:
    """List the images that a create may name."""
    with session.client() as client:
        if every:
            show_list(session, client.iterate_all_images(), IMAGE)
        else:
            show_list(session, client.iterate_images(), OFFERED_IMAGE)


@command(images, "show")
def show_image(session: Session, name: NameArgument) -> None:
    """Show one image (admin keys only)."""
    with session.client() as client:
        show_one(session, client.get_image(name), IMAGE)


@command(images, "delete")
def delete_image(session: Session, name: NameArgument) -> None:
    """Delete an image that nothing needs (admin keys only). Retire it first, so that nothing new uses it."""
    with session.client() as client:
        client.delete_image(name)
    if session.json:
        session.console.print_json(data={"name": name, "deleted": True})
    else:
        session.console.print(f"{name} is deleted", markup=False)


@command(regions, "put")
def put_region(
    session: Session, name: NameArgument, display_name: Annotated[str, typer.Option(help="name shown to people")]
) -> None:
    """Create or change a region (admin keys only)."""
    with session.client() as client:
        show_one(session, client.put_region(name, display_name=display_name), REGION)


@command(regions, "list")
def list_regions(session: Session) -> None:
    """List the regions."""
    with session.client() as client:
        show_list(session, client.iterate_regions(), REGION)
