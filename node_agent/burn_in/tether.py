"""Ends a process with the agent that started it: `python -m node_agent.burn_in.tether AGENT COMMAND [ARGUMENT]...`.

The kernel kills a tethered process when its parent ends, also by SIGKILL (PR_SET_PDEATHSIG, prctl(2)), and the setting
survives the execution of another program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tether(parent: int) -> None:
    """Let the kernel kill this process when its parent ends. Ends it at once if that is no longer this parent."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the process cannot be tethered to the agent")
    if os.getppid() != parent:
        os._exit(1)


def tethered(*command: str) -> tuple[str, ...]:
    """The command, ended with this process."""
    return (sys.executable, "-m", "node_agent.burn_in.tether", str(os.getpid()), *command)


if __name__ == "__main__":
    tether(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
