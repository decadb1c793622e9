"""`berth image import`: checks a file or a download, puts it where nodes fetch it, and registers it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from berth.cli.commands.nodes import Shape
from berth.cli.endings import USAGE, Refused
from berth.cli.images.commands import IMAGE
from berth.cli.images.fetching import is_url, take
from berth.cli.images.inspection import Bounds, Inspected, inspect
from berth.cli.images.qcow2 import NotAnImage
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
from berth.cli.printing import show_one
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

FILE_BYTES_MAX = 64 << 30
VIRTUAL_BYTES_MAX = 1 << 40
ASIDE = ".import-"


@dataclass(frozen=True)
class Place:
    """The directory that nodes fetch from, and the URL below which they find it."""

    directory: Path
    url_base: str


def import_image(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="a file, or an http(s) URL")],
    name: Annotated[str, typer.Option(help="unique name of the image")],
    shape: Annotated[list[Shape], typer.Option(help="a shape that may boot it, repeatable")],
    copy_to: Annotated[
        Path | None,
        typer.Option(help="directory that nodes fetch from; needed for a FILE", file_okay=False, exists=True),
    ] = None,
    url_base: Annotated[str | None, typer.Option(help="URL of that directory")] = None,
    sha256: Annotated[str | None, typer.Option(help="the publisher's SHA-256; another one is refused")] = None,
    bytes_max: Annotated[int, typer.Option(help="largest file", min=1)] = FILE_BYTES_MAX,
    virtual_bytes_max: Annotated[int, typer.Option(help="largest disk that it unpacks to", min=1)] = VIRTUAL_BYTES_MAX,
    gpu_model: Annotated[list[str] | None, typer.Option(help="repeatable; default: any")] = None,
    region: Annotated[list[str] | None, typer.Option(help="repeatable; default: every region")] = None,
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
    """Check a file or a download, and register it as an image (admin keys only). Format, firmware, smallest disk and size
    are found in it; an option that contradicts them is refused."""
    place = _place(source, copy_to, url_base)
    given = {
        "format": form and form.value, "firmware": firmware and firmware.value, "disk_bytes_min": disk_bytes_min,
    }  # fmt: skip
    try:
        with _aside(place) as aside:
            digest = take(source, aside, bytes_max)
            if sha256 not in (None, digest):
                raise NotAnImage(f"its SHA-256 is {digest}, not {sha256}")
            found = inspect(aside, Bounds(bytes_max, virtual_bytes_max))
            stated = _stated(found, given)
            url = source if place is None else _serve(aside, place, f"{digest}.{found.format}")
    except NotAnImage as problem:
        raise Refused(f"{source} is no image: {problem}", code="image_refused") from problem
    statement = read_statement(
        **stated, login_user=login_user, cloud_init=cloud_init, readiness=readiness, readiness_port=readiness_port,
        gpu_driver_version=gpu_driver, fabric_manager_version=fabric_manager,
    )  # fmt: skip
    with session.client() as client:
        made = client.put_image(
            name, url=url, sha256=digest, shapes=[one.value for one in shape], gpu_models=gpu_model or None,
            regions=region or None, statement=statement,
        )  # fmt: skip
        show_one(session, made, IMAGE)


def _place(source: str, directory: Path | None, url_base: str | None) -> Place | None:
    """Where the file is put; None: nodes download it from the source. Raises `Refused`."""
    if (directory is None) != (url_base is None):
        raise Refused("--copy-to and --url-base belong together", code="usage", exit_code=USAGE)
    if directory is None or url_base is None:
        if not is_url(source):
            detail = (
                "nodes cannot fetch a file of this machine; name a directory that they can: --copy-to and --url-base"
            )
            raise Refused(detail, code="usage", exit_code=USAGE)
        return None
    return Place(directory, url_base.rstrip("/"))


def _stated(found: Inspected, given: JsonObject) -> JsonObject:
    """Format, firmware, smallest disk and size of the statement. Raises NotAnImage for what was given and is not so."""
    form, firmware, disk = given["format"], given["firmware"], given["disk_bytes_min"]
    if form not in (None, found.format):
        raise NotAnImage(f"its format is {found.format}, not {form}")
    if disk is not None and disk < found.virtual_bytes:
        raise NotAnImage(f"it unpacks to {found.virtual_bytes} bytes, more than the smallest disk of {disk}")
    if found.boots_with is not None:
        if not found.boots_with:
            raise NotAnImage("it has neither a boot sector nor an EFI system partition")
        if firmware is not None and firmware not in found.boots_with:
            raise NotAnImage(f"it does not boot by {firmware}: it has only what {', '.join(found.boots_with)} starts")
        firmware = firmware or min(found.boots_with)
    return {
        "format": found.format, "firmware": firmware, "disk_bytes_min": disk or found.virtual_bytes,
        "size_bytes": found.size_bytes,
    }  # fmt: skip


@contextmanager
def _aside(place: Place | None) -> Iterator[Path]:
    """A name for the copy while it is not checked, in the directory of the place; nothing is left there."""
    directory = None if place is None else place.directory
    with tempfile.TemporaryDirectory(prefix=ASIDE, dir=directory) as own:
        yield Path(own) / "image"


def _serve(aside: Path, place: Place, name: str) -> str:
    """Move the checked copy to its name, durably; its URL."""
    aside.chmod(0o644)
    aside.rename(place.directory / name)
    descriptor = os.open(place.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return f"{place.url_base}/{name}"
