"""A software TPM as a process (swtpm), for tests of the agent's side and to record sessions."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.waiting import wait_for

MISSING = [program for program in ("swtpm", "swtpm_setup", "tpm2_quote") if shutil.which(program) is None]
WHY_NOT = f"not run: {', '.join(MISSING)} not installed (packages swtpm, swtpm-tools, tpm2-tools)"


@contextmanager
def running_tpm(directory: Path) -> Iterator[str]:
    """A new TPM, as from the factory; its TCTI address."""
    state = directory / "tpm-state"
    state.mkdir(parents=True)
    subprocess.run(["swtpm_setup", "--tpm2", "--tpmstate", state], check=True, capture_output=True, timeout=60)
    with serving_tpm(state, directory / "tpm") as tcti:
        yield tcti


@contextmanager
def serving_tpm(state: Path, socket: Path) -> Iterator[str]:
    """The TPM of this state, switched on; its TCTI address."""
    process = subprocess.Popen(
        ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}", "--server", f"type=unixio,path={socket}",
         "--ctrl", f"type=unixio,path={socket}.ctrl", "--flags", "not-need-init,startup-clear"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: socket.exists() and Path(f"{socket}.ctrl").exists(), "swtpm listens")
        yield f"swtpm:path={socket}"
    finally:
        process.terminate()
        process.wait(30)


def lock_out(tcti: str, directory: Path) -> None:
    """Have the TPM refuse keys: a secret was wrong as often as it allows, which is once."""
    run = partial(
        subprocess.run, capture_output=True, cwd=directory, env={**os.environ, "TPM2TOOLS_TCTI": tcti}, timeout=60
    )
    run(["tpm2_dictionarylockout", "-s", "-n", "1", "-t", "100000", "-l", "100000"], check=True)
    run(["tpm2_createprimary", "-Q", "-C", "o", "-p", "right", "-c", "key"], check=True)
    assert run(["tpm2_create", "-Q", "-C", "key", "-P", "wrong", "-u", "public", "-r", "private"]).returncode != 0
    run(["tpm2_flushcontext", "-t"], check=True)
