"""A software TPM as a process (swtpm), for tests of the agent's side and to record sessions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_for

MISSING = [program for program in ("swtpm", "swtpm_setup", "tpm2_quote") if shutil.which(program) is None]
WHY_NOT = f"not run: {', '.join(MISSING)} not installed (packages swtpm, swtpm-tools, tpm2-tools)"


@contextmanager
def running_tpm(directory: Path) -> Iterator[str]:
    """A new TPM, as from the factory; its TCTI address."""
    state, socket = directory / "tpm-state", directory / "tpm"
    state.mkdir(parents=True)
    subprocess.run(["swtpm_setup", "--tpm2", "--tpmstate", state], check=True, capture_output=True, timeout=60)
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
