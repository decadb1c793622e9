"""The audit over TLS to a real rsyslogd that is configured as the how-to says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.audit_stream.certificates import Certificates, issue
from tests.audit_stream.processes import append, stream_of, streaming
from tests.audit_stream.rsyslog import require_rsyslog, rsyslog
from tests.support.waiting import wait_for

ROWS = 200
DRIVERS = ("gtls", "ossl")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a receiver's certificate for localhost, and a client's."""
    return issue(tmp_path_factory.mktemp("certificates"))


def settings_for(port: int, certificates: Certificates) -> dict[str, str]:
    """The streamer's settings, as the page names them."""
    return {
        "BERTH_AUDIT_SYSLOG_URL": f"tls://localhost:{port}",
        "BERTH_AUDIT_SYSLOG_CA_FILE": str(certificates.authority),
        "BERTH_AUDIT_SYSLOG_CERTIFICATE_FILE": str(certificates.client),
    }


def insert_large(database: psycopg.Connection[Any], characters: int) -> None:
    """A row whose detail has so many characters."""
    database.execute(
        "insert into audit (principal_kind, principal_id, action, subject, detail)"
        " values ('system', 'test', 'thing.turn', 'things/1', jsonb_build_object('x', repeat('y', %s)))",
        (characters,),
    )


@pytest.mark.quick("gtls")
@pytest.mark.parametrize("driver", DRIVERS)
def test_every_row_is_written_once_and_whole(
    database_url: str, database: psycopg.Connection[Any], certificates: Certificates, tmp_path: Path, driver: str
) -> None:
    require_rsyslog(driver)
    append(database, ROWS)
    for characters in (1_000, 7_000, 7_400, 7_500, 7_600, 7_700, 9_000):
        insert_large(database, characters)
    newest = append(database, 1)
    with rsyslog(tmp_path, certificates, driver) as receiver:
        with streaming(database_url, tmp_path, **settings_for(receiver.port, certificates)) as streamer:
            wait_for(lambda: newest in receiver.sequences(), f"row {newest}; {(tmp_path / 'log').read_text()}")
            wait_for(lambda: stream_of(database, "syslog") == (newest, False, None), "the position to be saved")
            assert streamer.stop() == 0
        assert receiver.sequences() == list(range(1, newest + 1))
        first, *_, last = receiver.documents()
    assert first["unmapped"]["detail"] == {"n": 1, "é": '<"\\>', "x": 1.5}
    assert last["metadata"]["sequence"] == newest


@pytest.mark.full
def test_after_a_restart_of_the_receiver_no_row_is_missing(
    database_url: str, database: psycopg.Connection[Any], certificates: Certificates, tmp_path: Path
) -> None:
    require_rsyslog("gtls")
    before = append(database, ROWS)
    with rsyslog(tmp_path, certificates, "gtls") as receiver:
        with streaming(database_url, tmp_path, **settings_for(receiver.port, certificates)):
            wait_for(lambda: before in receiver.sequences(), "the rows before")
            receiver.stop()
            newest = append(database, ROWS)
            receiver.start()
            wait_for(lambda: newest in receiver.sequences(), "the rows after")
        found = receiver.sequences()
    assert list(dict.fromkeys(found)) == list(range(1, newest + 1))


@pytest.mark.full
def test_a_streamer_without_a_client_certificate_is_refused(
    database_url: str, database: psycopg.Connection[Any], certificates: Certificates, tmp_path: Path
) -> None:
    require_rsyslog("gtls")
    append(database, 3)
    with rsyslog(tmp_path, certificates, "gtls") as receiver:
        settings = settings_for(receiver.port, certificates)
        del settings["BERTH_AUDIT_SYSLOG_CERTIFICATE_FILE"]
        with streaming(database_url, tmp_path, **settings):
            wait_for(lambda: stream_of(database, "syslog")[1], "the failure on record")
        assert receiver.sequences() == []
