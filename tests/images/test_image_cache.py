"""The cache of images: fetched once for concurrent users, bounded by number and bytes, and never taken from a guest."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from node_agent.drivers.contract import DriverFailure
from node_agent.drivers.images import ImageBounds, ImageCache
from node_agent.protocol import FailureCode
from node_agent.wire.images import ImageParameters

KIB = 1024


class Shelf:
    """A cache, and images to fetch."""

    def __init__(self, directory: Path, images_max: int = 16, bytes_max: int = 1 << 30) -> None:
        self.directory = directory
        self.cached = directory / "images"
        self.cached.mkdir()
        self.cache = ImageCache(self.cached, ImageBounds(100 * KIB, images_max, bytes_max))

    def image(self, name: str, size: int = 10 * KIB) -> ImageParameters:
        source = self.directory / name
        if not source.exists():
            source.write_bytes(os.urandom(size))
        return ImageParameters(name=name, url=source.as_uri(), sha256=hashlib.sha256(source.read_bytes()).hexdigest())

    def link(self, image: ImageParameters, target: str) -> Path:
        path = self.directory / target
        asyncio.run(self.cache.link(image, path, lambda _share, _detail: None))
        return path

    def names(self) -> set[str]:
        return {path.name for path in self.cached.iterdir()}


def test_a_link_is_the_cached_file_for_reading_alone_and_is_made_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    image = shelf.image("a")
    one, two = shelf.link(image, "one"), shelf.link(image, "two")
    assert one.samefile(two)
    assert one.samefile(shelf.cached / image.sha256)
    assert one.stat().st_mode & 0o777 == 0o444
    (shelf.directory / "a").unlink()
    assert shelf.link(image, "one").samefile(two), "what is there is kept, without its source"


def test_concurrent_links_fetch_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    image = shelf.image("a")

    async def all_at_once() -> None:
        await asyncio.gather(*(shelf.cache.link(image, tmp_path / f"g{n}", lambda _s, _d: None) for n in range(8)))

    asyncio.run(all_at_once())
    assert len({(tmp_path / f"g{n}").stat().st_ino for n in range(8)}) == 1
    assert (tmp_path / "g0").stat().st_nlink == 9


@pytest.mark.parametrize("bounds", [{"images_max": 2}, {"bytes_max": 25 * KIB}], ids=["by number", "by bytes"])
def test_the_oldest_unused_image_is_evicted(tmp_path: Path, bounds: dict[str, int]) -> None:
    shelf = Shelf(tmp_path, **bounds)
    images = [shelf.image(name) for name in "abc"]
    for number, image in enumerate(images):
        shelf.link(image, f"guest-{number}").unlink()
        os.utime(shelf.cached / image.sha256, (number, number))
    assert shelf.names() == {image.sha256 for image in images[1:]}


def test_an_image_in_use_is_not_evicted_and_one_that_is_released_is(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, images_max=1)
    first, second, third = (shelf.image(name) for name in "abc")
    guest = shelf.link(first, "guest")
    shelf.link(second, "other").unlink()
    assert shelf.names() == {first.sha256, second.sha256}, "the newest stays, and so does the one in use"
    guest.unlink()
    shelf.link(third, "third")
    assert shelf.names() == {third.sha256}


def test_a_guest_keeps_its_image_when_the_cache_loses_it(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    image = shelf.image("a")
    guest = shelf.link(image, "guest")
    (shelf.cached / image.sha256).unlink()
    assert hashlib.sha256(guest.read_bytes()).hexdigest() == image.sha256
    assert not shelf.link(image, "another").samefile(guest), "fetched again"


def test_a_target_without_a_directory_is_a_failure_not_a_wait(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    with pytest.raises(DriverFailure, match="No such file"):
        shelf.link(shelf.image("a"), "missing/guest")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sha256": "0" * 64}, FailureCode.IMAGE_CHECKSUM_MISMATCH),
        ({"url": "file:///nonexistent/image"}, FailureCode.IMAGE_DOWNLOAD_FAILED),
        ({"url": "ftp://example/image"}, FailureCode.IMAGE_DOWNLOAD_FAILED),
    ],
)
def test_what_cannot_be_fetched_leaves_nothing(tmp_path: Path, change: dict[str, str], code: FailureCode) -> None:
    shelf = Shelf(tmp_path)
    with pytest.raises(DriverFailure) as failed:
        shelf.link(shelf.image("a").model_copy(update=change), "guest")
    assert failed.value.code is code
    assert shelf.names() == set()
    assert not (tmp_path / "guest").exists()


def test_an_image_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    with pytest.raises(DriverFailure, match="larger than"):
        shelf.link(shelf.image("large", 101 * KIB), "guest")
    assert shelf.names() == set()
