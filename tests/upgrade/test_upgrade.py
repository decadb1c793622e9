"""An upgrade from the last release: a process of it serves before, while and after the present code upgrades the schema."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

import migrations
from berth.local.servers import LocalPostgres
from migrations.functions import apply_functions, digest_of, generation, read_functions
from migrations.functions.files import FOLDER, GENERATIONS
from tests.api.calling import Caller, insert_admin_key, new_place
from tests.api.processes import public_process
from tests.databases import empty_database
from tests.upgrade.release import migrate_as_release, unpack_release
from tests.upgrade.traffic import release_process, traffic_at


@pytest.fixture
def release(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a Python that imports the code of the release."""
    return unpack_release(tmp_path / "release")


@pytest.fixture
def release_url(postgres_server: LocalPostgres, release: Mapping[str, str]) -> Iterator[str]:
    """A database that the release migrated."""
    with empty_database(postgres_server) as url:
        migrate_as_release(release, url)
        yield url


def replace_every_function(url: str, folder: Path) -> None:
    """Upgrade to a generation in which the text of each function differs, so that each is replaced."""
    for path in folder.glob("*/*.sql"):
        path.write_text(path.read_text() + "-- again\n")
    number = generation(folder)[0] + 1
    with (folder / GENERATIONS).open("a") as lines:
        lines.write(f"{number} {digest_of(read_functions(folder))}\n")
    with psycopg.connect(url) as connection:
        assert len(apply_functions(connection, folder)) >= len(list(folder.glob("*/*.sql")))


def keep_deprecated(folder: Path, release: Path) -> None:
    """Add the functions that only the release calls: a further generation would drop them, and while one follows
    another here, the processes that call them still run (docs/explanation/sql-functions.md, "When the old function is removed").
    """
    present = {path.stem for path in folder.glob("*/*.sql")}
    for path in release.glob("*/*.sql"):
        if path.stem not in present:
            shutil.copy(path, folder / path.parent.name / path.name)


# Long, as all that runs the recorded release. tests/schema upgrades without load in `make test`.
@pytest.mark.full
def test_no_request_fails_while_the_database_is_upgraded(
    release_url: str, release: Mapping[str, str], tmp_path: Path
) -> None:
    key = insert_admin_key(release_url)
    folder = Path(shutil.copytree(FOLDER, tmp_path / "functions"))
    keep_deprecated(folder, Path(release["PYTHONPATH"].partition(os.pathsep)[0]) / "migrations" / "functions")
    with (
        release_process(release_url, tmp_path / "old", release) as old_http,
        psycopg.connect(release_url, autocommit=True) as database,
    ):
        place = new_place(Caller(old_http, key), database)
        with traffic_at(old_http, key, place).running() as old:
            old.wait_for_rounds()
            assert migrations.upgrade(release_url) == migrations.head_revision()
            for _ in itertools.repeat(None, 3):
                old.wait_for_rounds()
                replace_every_function(release_url, folder)
            with (
                public_process(release_url, tmp_path / "new") as new_http,
                traffic_at(new_http, key, place).running() as new,
            ):
                new.wait_for_rounds()
                old.wait_for_rounds()
