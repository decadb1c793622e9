"""Copies of images: one for each SHA-256, on paths that cannot be computed, and none once no update needs it."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from node_agent.site.images import SiteImages
from node_agent.site.lease import Lease
from node_agent.site.media import MediaPlace, SiteMedia
from node_agent.site.problems import NotDone
from node_agent.wire.firmware import FirmwareOrder
from tests.sites.updates.running import SHA256, ImageServer


def images(directory: Path) -> SiteImages:
    place = MediaPlace("http://agent", "127.0.0.1", 0, directory / "none.iso")
    return SiteImages(SiteMedia(place, Lease(lambda: 0.0), CollectorRegistry()), directory)


def ordered(server: ImageServer, **changes: str) -> FirmwareOrder:
    made = {"image_url": f"http://127.0.0.1:{server.port}/a.bin", "sha256": SHA256, "targets": ["BMC"], "version": "2"}
    return FirmwareOrder.model_validate({**made, **changes})


def test_updates_at_once_share_one_copy_on_paths_that_cannot_be_computed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with ImageServer().serving() as server:
            served, order, task = images(tmp_path), ordered(server), uuid.uuid4()
            urls: list[str] = []
            together = asyncio.Barrier(8)

            async def update(task_id: uuid.UUID) -> None:
                async with served.served(order, task_id, 1) as url:
                    urls.append(url)
                    await together.wait()

            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(update(task if number == 0 else uuid.uuid4()))
            assert (len(set(urls)), len(server.paths), served._copies) == (8, 1, {})
            async with served.served(order, task, 1) as here, images(tmp_path).served(order, task, 1) as there:
                assert here != there, "task and image do not determine the path"
                assert len(server.paths) == 3, "what no update needed was not kept"

    asyncio.run(scene())


def test_an_image_that_is_refused_is_not_kept_for_the_next_update(tmp_path: Path) -> None:
    async def scene() -> None:
        async with ImageServer().serving() as server:
            served, good = images(tmp_path), server.answer
            server.answer = good[:-1]

            async def update() -> str:
                with pytest.raises(NotDone) as refused:
                    async with served.served(ordered(server), uuid.uuid4(), 1):
                        raise AssertionError("another image is not served")
                return refused.value.code

            assert list(await asyncio.gather(update(), update())) == ["image_mismatch"] * 2
            server.answer = good
            async with served.served(ordered(server), uuid.uuid4(), 1):
                assert len(server.paths) == 3
            assert served._copies == {}

    asyncio.run(scene())
