"""`python -m benchmarks.guards.unguarded <module> [arguments]`: as `python -m <module>`, without the limits of principals.

For the benchmark `guards`: production code has no setting that turns them off.
"""

from __future__ import annotations

import runpy
import sys
from uuid import UUID

from orchestrator.http.asgi import Scope
from orchestrator.http.principal_limits import PrincipalLimits


async def admit(self: PrincipalLimits, scope: Scope, principal: UUID) -> None:
    """Count nothing."""


def main() -> None:
    """Replace the limits, then run the module."""
    module, *arguments = sys.argv[1:]
    PrincipalLimits.admit = admit  # type: ignore[method-assign]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
