"""Libraries that a command loads at start, and the sentence it prints if one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOADED_LATER = ("alembic", "asyncssh", "cryptography", "fastapi", "httpx", "nats", "psutil", "psycopg", "sqlalchemy")


def _python(code: str, state_directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    environment |= {"BERTH_STATE_DIR": str(state_directory), **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def _berth_without(
    missing: tuple[str, ...], arguments: list[str], state: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the program as if some libraries were not installed."""
    hide = "; ".join(f"sys.modules[{name!r}] = None" for name in missing)
    run = f"import sys; {hide}; sys.argv = ['berth', *{arguments}]; import berth.cli.main as m; m.run()"
    return _python(run, state, **variables)


def test_the_program_starts_without_the_libraries_of_single_commands(tmp_path: Path) -> None:
    code = f"import sys, berth.cli.main; print([name for name in {LOADED_LATER} if name in sys.modules])"
    done = _python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.full
def test_the_cli_extra_is_enough_to_ask_the_api(tmp_path: Path) -> None:
    missing = tuple(name for name in LOADED_LATER if name not in ("httpx", "psycopg", "nats"))
    arguments = ["tenant", "list", "--output", "json"]
    address = {"BERTH_API_URL": "http://127.0.0.1:1", "BERTH_API_KEY": "k"}
    done = _berth_without(missing, arguments, tmp_path, **address)
    assert done.returncode == 3, done.stderr
    assert '"code": "unreachable"' in done.stdout


def test_a_missing_library_is_one_sentence(tmp_path: Path) -> None:
    done = _berth_without(("alembic",), ["up"], tmp_path / "state")
    assert done.returncode == 1
    assert done.stderr == "berth: this needs alembic, which is not here; install `berth[local]`\n"
    assert not (tmp_path / "state").exists()


@pytest.mark.full
def test_text_that_no_request_can_carry_is_one_sentence(tmp_path: Path) -> None:
    address = {"BERTH_API_URL": "http://127.0.0.1:1", "BERTH_API_KEY": "k"}
    for arguments, variables in (
        (["alloc", "list"], {"BERTH_API_KEY": "\u00e9"}),
        (["alloc", "list"], {"BERTH_API_KEY": "a\nb"}),
        (["tenant", "create", "\udcff"], {}),
        (["alloc", "list", "--label", "a=\udcff"], {}),
    ):
        done = _berth_without(("alembic",), arguments, tmp_path, **{**address, **variables})
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("berth: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.quick("text")
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_full_output_device_is_one_sentence(tmp_path: Path, output: str) -> None:
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    run = f"import sys; sys.argv = ['berth', 'doctor', '--output', '{output}']; import berth.cli.main as m; m.run()"
    done = _python(f"{full}; {run}", tmp_path)
    assert done.returncode != 0
    assert "berth: system: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
