"""`python -m tests.dying <module> [arguments]`: as `python -m <module> [arguments]`, with a fault in one of its loops.

BERTH_DIES_IN=<module>:<attribute>[.<attribute>] names a function; instead of running, it raises `RuntimeError: planted`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import runpy
import sys
from typing import Any, NoReturn


def plant(where: str) -> None:
    """Make the function fail. Raises AttributeError or ImportError if there is none of that name."""
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    asynchronous = inspect.iscoroutinefunction(getattr(owner, name))

    def die(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("planted")

    async def die_soon(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("planted")

    setattr(owner, name, die_soon if asynchronous else die)


def main() -> None:
    """Plant, then become the module."""
    module, arguments = sys.argv[1], sys.argv[2:]
    plant(os.environ["BERTH_DIES_IN"])
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
