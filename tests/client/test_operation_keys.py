"""Idempotency keys of the client: parseable, and never the same twice, for any client id and any start."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.client import Invalid
from berth.client.requests import client_ids
from berth.client.requests.client_ids import kept_client_id
from berth.client.requests.operation_keys import (
    CLIENT_ID_LENGTH_MAX,
    KEY_LENGTH_MAX,
    NUMBER_DIGITS_MAX,
    KeySequence,
    OperationKey,
    encoded_client_id,
    parse_key,
)
from tests.support.waiting import let_others_run

numbers = st.integers(0, 10**NUMBER_DIGITS_MAX - 1)
nonces = st.text("0123456789abcdef", min_size=16, max_size=16)
names = st.text(st.characters() | st.sampled_from(":%/ .~\ud800\U0001f6a2"), min_size=1, max_size=80)


@given(name=names, sequence=numbers, nonce=nonces, created=numbers)
def test_a_key_parses_to_its_parts(name: str, sequence: int, nonce: str, created: int) -> None:
    key = OperationKey(name, sequence, nonce, created)
    try:
        text = str(key)
    except Invalid:
        assert len(name.encode(errors="surrogatepass")) * 3 > CLIENT_ID_LENGTH_MAX
        return
    assert parse_key(text) == key
    assert len(text) <= KEY_LENGTH_MAX
    assert text.isascii()
    assert text.isprintable()
    assert text.count(":") == 3


@given(st.text() | st.from_regex(r"[a-c%:.]{0,9}:[0-9]{1,4}:[0-9a-f]{16}:[0-9]{1,4}", fullmatch=True))
def test_a_parsed_key_formats_to_the_same_text(text: str) -> None:
    found = parse_key(text)
    assert found is None or str(found) == text


@pytest.mark.parametrize(
    "text",
    ["", "mine", "a:1:0123456789abcdef", "a:01:0123456789abcdef:5", "a:1:0123456789ABCDEF:5", "a:1:0123456789abcdef:5\n",
     ":1:0123456789abcdef:5", "%:1:0123456789abcdef:5", "%61:1:0123456789abcdef:5", "%ff:1:0123456789abcdef:5",
     "a:1:0123456789abcdef:٣", "a" * 300 + ":1:0123456789abcdef:5"],
)  # fmt: skip
def test_keys_of_another_format_do_not_parse(text: str) -> None:
    assert parse_key(text) is None


def test_the_longest_name_fits_the_longest_key_and_a_longer_one_is_refused() -> None:
    most = 10**NUMBER_DIGITS_MAX - 1
    assert len(str(OperationKey("n" * CLIENT_ID_LENGTH_MAX, most, "0" * 16, most))) == KEY_LENGTH_MAX
    for unusable in ("", "n" * (CLIENT_ID_LENGTH_MAX + 1), ":" * (CLIENT_ID_LENGTH_MAX // 3 + 1)):
        with pytest.raises(Invalid, match="client id"):
            KeySequence(unusable, lambda: 0.0)
        with pytest.raises(Invalid):
            encoded_client_id(unusable)


def test_threads_and_tasks_draw_each_number_once() -> None:
    keys = KeySequence("c", lambda: 1000.9)

    def draw(_: int) -> list[int]:
        return [keys.draw().sequence for _ in range(500)]

    async def tasks() -> list[int]:
        async def one() -> int:
            await let_others_run()
            return keys.draw().sequence

        return await asyncio.gather(*(one() for _ in range(500)))

    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(draw, range(8)))
    assert all(numbers == sorted(numbers) for numbers in drawn)
    assert sorted(n for numbers in drawn for n in numbers) == list(range(1, 4001))
    assert asyncio.run(tasks()) == list(range(4001, 4501))
    assert keys.draw().created_at_seconds == 1000


def test_a_restart_and_a_fork_draw_under_another_nonce() -> None:
    first, second = KeySequence("c", lambda: 0.0), KeySequence("c", lambda: 0.0)
    mine = first.draw()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(first.draw()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    forked = parse_key(os.read(reader, 300).decode())
    os.close(reader)
    os.close(writer)
    assert forked is not None
    assert (forked.client_id, forked.sequence) == ("c", 1)
    assert len({mine.nonce, second.draw().nonce, forked.nonce}) == 3
    assert first.draw().sequence == 2


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "berth" / "client-id"


def test_the_client_id_is_the_same_after_a_restart(home: Path) -> None:
    again = [
        sys.executable,
        "-c",
        "from berth.client.requests.client_ids import kept_client_id; print(kept_client_id())",
    ]
    starts = [subprocess.Popen(again, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {start.communicate()[0].strip() for start in starts}
    assert said == {kept_client_id()}
    assert home.read_text() == f"{kept_client_id()}\n"
    assert [file.name for file in home.parent.iterdir()] == ["client-id"]


def test_an_id_written_between_read_and_write_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two first starts at once: the other process has written its id already."""
    look = client_ids._read

    def look_too_early(file: Path) -> str | None:
        if home.exists():
            return look(file)
        home.parent.mkdir()
        home.write_text("0123456789ab\n")
        return None

    monkeypatch.setattr(client_ids, "_read", look_too_early)
    assert kept_client_id() == "0123456789ab"
    assert home.read_text() == "0123456789ab\n"


@pytest.mark.parametrize("content", [b"", b"0123", b"\xff\xfe", b"0123456789ab\nmore", b"0123456789AB\n"])
def test_a_torn_or_foreign_file_is_replaced(home: Path, content: bytes) -> None:
    home.parent.mkdir()
    home.write_bytes(content)
    kept = kept_client_id()
    assert kept_client_id() == kept
    assert home.read_text() == f"{kept}\n"


def _is_a_file(home: Path) -> None:
    home.parent.write_text("in the way")


def _is_a_directory(home: Path) -> None:
    home.mkdir(parents=True)


@pytest.mark.parametrize("unusable", [_is_a_file, _is_a_directory])
def test_without_a_usable_directory_the_id_is_random_per_process(home: Path, unusable: Callable[[Path], None]) -> None:
    unusable(home)
    assert len({kept_client_id(), kept_client_id()}) == 2


def test_a_relative_state_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    kept = kept_client_id()
    assert (tmp_path / "home" / ".local" / "state" / "berth" / "client-id").read_text() == f"{kept}\n"
    assert not (tmp_path / "relative").exists()
