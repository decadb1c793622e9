"""Replaces this process by Patroni as the system user that runs PostgreSQL: `launch <user> <patroni.yml>`, as root.

The interpreter and the packages may lie where that user cannot follow a path, for example below `/root` (0700). They are opened
here, and Patroni reaches each through its descriptor, so no directory becomes accessible to other users.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path


def reachable(path: str | Path) -> str:
    """A name of a file or directory that this process id can open whatever the permissions of the directories above it.

    The descriptor stays open and is inherited: the name is valid as long as a process with this id runs.
    """
    descriptor = os.open(path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def main(user: str, configuration: str) -> None:
    """Execute Patroni. Raises `OSError` if the interpreter cannot be run."""
    library = Path(os.__file__).parent
    packages = [entry for entry in sys.path if Path(entry).is_dir() and not library.is_relative_to(entry)]
    packages = [entry for entry in packages if Path(entry).name != "lib-dynload" and Path(entry) != Path.cwd()]
    home = reachable(sys.base_prefix)
    environment = {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": str(Path(configuration).parent), "LANG": "C.UTF-8",
        "PYTHONHOME": home, "PYTHONPATH": ":".join(map(reachable, packages)), "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "LD_LIBRARY_PATH": f"{home}/lib",
    }  # fmt: skip
    interpreter = reachable(Path(sys.executable).resolve())
    entry = pwd.getpwnam(user)
    os.chdir("/")
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    os.execve(interpreter, [interpreter, "-P", "-S", "-m", "patroni", configuration], environment)


if __name__ == "__main__":
    main(*sys.argv[1:])
