"""A machine reads the common medium's bytes with its own configuration in their place, whatever ranges it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.media.medium import CommonMedium, MediumChanged, MediumUnusable
from node_agent.media.placeholder import CONFIGURATION_BYTES, PLACEHOLDER
from node_agent.media.publications import PUBLISHED_MAX, SECONDS_MAX, Publications, TooManyPublished
from node_agent.media.ranges import Span, Unsatisfiable, asked_span
from node_agent.wire.deploy_medium import MEDIUM_BYTES_MAX, MediumInvalid, read_medium
from node_agent.wire.deploy_medium import PLACEHOLDER as BEGINNING
from tests.media.media_files import AT, SIZE_BYTES, common_medium, configuration, own


@pytest.mark.parametrize(
    ("start", "length"),
    [
        (0, SIZE_BYTES),
        (AT - 1, 2),
        (AT, CONFIGURATION_BYTES),
        (AT + CONFIGURATION_BYTES - 1, 2),
        (AT + 10, 20),
        (AT + CONFIGURATION_BYTES, 1),
        (SIZE_BYTES - 1, 1),
        (0, AT),
    ],
)
def test_every_range_is_that_of_the_machines_own_medium(tmp_path: Path, start: int, length: int) -> None:
    content = common_medium(tmp_path / "iso")
    with CommonMedium(tmp_path / "iso") as medium:
        assert medium.read(configuration(), start, length) == own(content)[start : start + length]


def test_the_placeholder_is_what_the_deploy_system_takes_for_no_configuration() -> None:
    assert len(PLACEHOLDER) == CONFIGURATION_BYTES == MEDIUM_BYTES_MAX
    assert PLACEHOLDER.startswith(BEGINNING)
    with pytest.raises(MediumInvalid, match="no configuration"):
        read_medium(PLACEHOLDER)


@pytest.mark.parametrize("content", [b"", b"x" * 10_000, b"\0" * 2048 + 2 * PLACEHOLDER, b"x" + PLACEHOLDER])
def test_a_file_without_exactly_one_place_is_no_medium(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "iso").write_bytes(content)
    with pytest.raises(MediumUnusable, match="no deploy medium"):
        CommonMedium(tmp_path / "iso")
    with pytest.raises(MediumUnusable, match="No such file"):
        CommonMedium(tmp_path / "other")


def test_a_file_that_is_replaced_or_deleted_is_read_on_as_it_was(tmp_path: Path) -> None:
    content = common_medium(tmp_path / "iso")
    with CommonMedium(tmp_path / "iso") as medium:
        common_medium(tmp_path / "new")
        (tmp_path / "new").rename(tmp_path / "iso")
        assert medium.read(configuration(), 0, SIZE_BYTES) == own(content)
        (tmp_path / "iso").unlink()
        assert medium.read(configuration(), 0, SIZE_BYTES) == own(content)


def test_a_truncated_file_is_not_filled_up(tmp_path: Path) -> None:
    common_medium(tmp_path / "iso")
    with CommonMedium(tmp_path / "iso") as medium:
        with (tmp_path / "iso").open("r+b") as file:
            file.truncate(AT)
        with pytest.raises(MediumChanged, match=f"ends at byte {AT}"):
            medium.read(configuration(), AT - 1, 2)
    with pytest.raises(MediumChanged):
        medium.read(configuration(), 0, 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_path_ends_with_its_time_and_when_it_is_withdrawn(tmp_path: Path) -> None:
    common_medium(tmp_path / "iso")
    clock = Clock()
    with CommonMedium(tmp_path / "iso") as medium:
        publications = Publications(clock)
        first, second = (publications.publish(medium, configuration(word), 60) for word in ("one", "two"))
        assert first != second
        assert first.endswith("/deploy.iso")
        found = publications.find(first)
        assert found is not None
        assert found.configuration == configuration("one")
        publications.withdraw(first)
        assert publications.find(first) is None
        clock.now += 60
        assert publications.find(second) is None
        assert len(publications) == 0


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/media",
        "/media//deploy.iso",
        "/media/x/deploy.iso",
        "/media/x/other.iso",
        "/media/x/deploy.iso/",
        "/x/\xff",
    ],
)
def test_other_paths_have_nothing(path: str) -> None:
    assert Publications().find(path) is None


def test_media_are_bounded_in_number_time_and_size(tmp_path: Path) -> None:
    common_medium(tmp_path / "iso")
    clock = Clock()
    with CommonMedium(tmp_path / "iso") as medium:
        publications = Publications(clock)
        for seconds in (0, -1, SECONDS_MAX + 1):
            with pytest.raises(ValueError, match="seconds"):
                publications.publish(medium, configuration(), seconds)
        with pytest.raises(ValueError, match="8192 bytes"):
            publications.publish(medium, b"short", 60)
        for _ in range(PUBLISHED_MAX):
            publications.publish(medium, configuration(), 60)
        with pytest.raises(TooManyPublished):
            publications.publish(medium, configuration(), 60)
        clock.now += 60
        publications.publish(medium, configuration(), 60)


@pytest.mark.parametrize(
    ("header", "span"),
    [
        (None, None),
        ("bytes=0-0", Span(0, 1)),
        ("bytes=10-", Span(10, 100)),
        ("bytes=-10", Span(90, 100)),
        ("bytes=-1000", Span(0, 100)),
        ("Bytes = 5-1000", Span(5, 100)),
        ("bytes=0-9999999999999999999", Span(0, 100)),
        ("bytes=9-5", None),
        ("bytes=0-1,5-6", None),
        ("bytes=-", None),
        ("lines=0-1", None),
        ("bytes=0-99999999999999999999999", None),
    ],
)
def test_ranges_are_those_of_rfc_9110(header: str | None, span: Span | None) -> None:
    assert asked_span(header, 100) == span


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_a_range_behind_the_end_is_unsatisfiable(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        asked_span(header, 100)
