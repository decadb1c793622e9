"""`python -m tests.security.attacks.with_few_files module arguments`: run the module with 1,024 open files at most."""

from __future__ import annotations

import resource
import runpy
import sys

FILES = 1_024


def main() -> None:
    """Lower both limits and run the module as a program."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
