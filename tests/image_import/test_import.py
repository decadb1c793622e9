"""`berth image import`: a file is copied for nodes and registered, a URL is checked, and what is bad changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from berth.cli.images import fetching
from berth.cli.main import app
from tests.berth.scripted import Reply, ScriptedServer
from tests.image_import.files import DISK, disk, qcow2

IMAGE = {"name": "debian", "url": "https://x/y", "sha256": "0" * 64, "shapes": ["gpu_slice"], "state": "active"}


def imported(server: ScriptedServer, source: object, *more: str) -> Result:
    """The result of an import as `debian`."""
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "200"}
    line = ["image", "import", str(source), "--name", "debian", "--shape", "gpu_slice", "--output", "json", *more]
    return CliRunner().invoke(app, line, env=settings)


def served(directory: Path) -> tuple[str, ...]:
    """The options that put the file into a directory that nodes fetch from."""
    directory.mkdir(exist_ok=True)
    return ("--copy-to", str(directory), "--url-base", "https://images.example/os/")


def refused(result: Result, why: str, exit_code: int = 1) -> None:
    """The command ended with the reason."""
    assert result.exit_code == exit_code, result.output
    assert why in json.loads(result.stdout)["error"]["detail"], result.output


@contextmanager
def website(content: bytes, status: int = 200, cut: int | None = None, **headers: str) -> Iterator[str]:
    """A URL that answers so; `cut`: the connection ends after that many bytes."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content[:cut])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/image"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_file_is_copied_under_its_hash_and_registered_with_what_was_found(tmp_path: Path) -> None:
    source, directory, content = tmp_path / "image", tmp_path / "served", qcow2(disk(bios=False, gpt=True))
    source.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    with ScriptedServer([Reply(body=IMAGE), Reply(body=IMAGE)]) as server:
        for _ in range(2):
            done = imported(server, source, *served(directory), "--login-user", "debian", "--gpu-driver", "570.124.06")
            assert done.exit_code == 0, done.output
        assert {(asked.method, asked.path) for asked in server.asked} == {("PUT", "/api/v1/admin/images/debian")}
        statement = {
            "format": "qcow2", "firmware": "uefi", "login_user": "debian", "cloud_init": True, "readiness": "message",
            "disk_bytes_min": DISK, "size_bytes": len(content), "gpu_driver_version": "570.124.06",
        }  # fmt: skip
        assert server.asked[0].body == {
            "url": f"https://images.example/os/{digest}.qcow2", "sha256": digest, "shapes": ["gpu_slice"],
            "statement": statement,
        }  # fmt: skip
    assert [file.name for file in directory.iterdir()] == [f"{digest}.qcow2"], "twice the same, and nothing else"
    assert (directory / f"{digest}.qcow2").read_bytes() == content
    assert (directory / f"{digest}.qcow2").stat().st_mode & 0o777 == 0o644


def test_a_url_is_checked_and_registered_as_it_is(tmp_path: Path) -> None:
    content = disk()
    with ScriptedServer([Reply(body=IMAGE)]) as server, website(content) as url:
        done = imported(server, url, "--no-cloud-init", "--sha256", hashlib.sha256(content).hexdigest())
        assert done.exit_code == 0, done.output
        body = server.asked[0].body
        assert (body["url"], body["sha256"]) == (url, hashlib.sha256(content).hexdigest())
        assert (body["statement"]["format"], body["statement"]["readiness"]) == ("raw", "ssh")


@pytest.mark.parametrize(
    ("content", "options", "why"),
    [
        (qcow2(backing=512, backing_length=9), "", "backing file"),
        (qcow2(), "--format raw", "its format is qcow2, not raw"),
        (qcow2(), "--firmware uefi", "does not boot by uefi"),
        (qcow2(), "--disk-bytes-min 1000", "more than the smallest disk"),
        (qcow2(), "--virtual-bytes-max 1000", "--virtual-bytes-max"),
        (qcow2(), "--bytes-max 1000", "--bytes-max"),
        (qcow2(), f"--sha256 {'0' * 64}", "its SHA-256 is"),
        (qcow2(bytes(1 << 16)), "", "neither a boot sector"),
    ],
)
def test_a_bad_file_changes_nothing(tmp_path: Path, content: bytes, options: str, why: str) -> None:
    source, directory = tmp_path / "image", tmp_path / "served"
    source.write_bytes(content)
    with ScriptedServer([Reply(body=IMAGE)]) as server:
        refused(imported(server, source, *served(directory), *shlex.split(options)), why)
        assert server.asked == []
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("change", ["longer", "touched", "replaced"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    source, directory = tmp_path / "image", tmp_path / "served"
    source.write_bytes(qcow2())
    monkeypatch.setattr(fetching, "CHUNK_BYTES", 4096)
    read = fetching._read

    def read_and_change(path: Path, bytes_max: int) -> Iterator[bytes]:
        chunks = read(path, bytes_max)
        yield next(chunks)
        if change == "longer":
            with source.open("ab") as file:
                file.write(b"more")
        elif change == "touched":
            with source.open("r+b") as file:
                file.write(b"QFI\xfb")
            os.utime(source, ns=(0, 0))
        else:
            other = tmp_path / "other"
            other.write_bytes(qcow2())
            other.rename(source)
        yield from chunks

    monkeypatch.setattr(fetching, "_read", read_and_change)
    with ScriptedServer([Reply(body=IMAGE)]) as server:
        refused(imported(server, source, *served(directory)), "changed while it was read")
        assert server.asked == []
    assert list(directory.iterdir()) == []


def test_a_download_is_bounded_never_unpacked_and_whole() -> None:
    with ScriptedServer([Reply(body=IMAGE)]) as server:
        with website(disk(), content_encoding="gzip") as url:
            refused(imported(server, url), "packed content")
        with website(disk()) as url:
            refused(imported(server, url, "--bytes-max", "1000"), "--bytes-max")
        with website(disk(), cut=5000) as url:
            refused(imported(server, url), "cannot be downloaded", exit_code=3)
        with website(b"", status=404) as url:
            refused(imported(server, url), "answers 404")
        refused(imported(server, "http://127.0.0.1:1/image"), "cannot be downloaded", exit_code=3)
        assert server.asked == []


def test_wrong_usage_and_what_is_no_file(tmp_path: Path) -> None:
    source = tmp_path / "image"
    source.write_bytes(qcow2())
    os.mkfifo(tmp_path / "pipe")
    with ScriptedServer([Reply(body=IMAGE)]) as server:
        refused(imported(server, source), "--copy-to and --url-base", exit_code=2)
        refused(imported(server, source, "--url-base", "https://x"), "belong together", exit_code=2)
        refused(imported(server, tmp_path / "pipe", *served(tmp_path / "served")), "no regular file")
        refused(imported(server, tmp_path, *served(tmp_path / "served")), "no regular file")
        refused(imported(server, tmp_path / "absent", *served(tmp_path / "served")), "No such file")
        assert server.asked == []


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (["https://a/x"], False),
        (["https://a/x", "https://b/y"], False),
        (["http://a/x", "https://b/y"], False),
        (["http://a/x"], False),
        (["https://a/x", "http://b/y"], True),
        (["https://a/x", "http://b/y", "https://c/z"], True),
    ],
)
def test_a_download_that_began_with_tls_does_not_go_on_without(urls: list[str], expected: bool) -> None:
    assert fetching.leaves_https(urls) is expected
