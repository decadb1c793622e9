"""Processors: every core that this process may use repeats one computation, whose result is known."""

from __future__ import annotations

import hashlib
import math
import os
import signal
import time
from collections.abc import Callable

from node_agent.burn_in.tether import tether
from node_agent.wire.burn_in import BurnInPart

SECONDS_WHEN_SHARED = 1.0
EXPECTED = "3eea83a905a5ca081fce5a431bdfab7cc20306e0be1696e645e2e28a092b83d4"
_NICE_MOST = 19
_RIGHT, _WRONG, _UNTESTED = 0, 1, 2
_BROKEN = (-signal.SIGILL, -signal.SIGFPE, -signal.SIGSEGV, -signal.SIGBUS)
_NAMED_MAX = 16


def compute() -> str:
    """Hashes, large integers and floating-point numbers: exact by their standards, so equal on every sound core."""
    digest = b"berth burn-in"
    for _ in range(4_000):
        digest = hashlib.sha512(digest).digest()
    number = pow(3, int.from_bytes(digest), 2**521 - 1)
    value, total = 0.5, 0.0
    for step in range(1, 20_000):
        value = 3.99 * value * (1.0 - value)
        total += math.sqrt(value) / step
    text = f"{number:x}:{value.hex()}:{total.hex()}"
    return hashlib.sha256(text.encode()).hexdigest()


def run_cpu_test(seconds: float, *, shared: bool, computation: Callable[[], str] = compute) -> BurnInPart:
    """Compute on every allowed core at once, at the lowest priority. `computation` is replaced in tests."""
    seconds = min(seconds, SECONDS_WHEN_SHARED) if shared else seconds
    cores = sorted(os.sched_getaffinity(0))
    children = {core: _start(core, seconds, computation) for core in cores}
    found = {core: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for core, child in children.items()}
    wrong = [core for core, code in found.items() if code in (_WRONG, *_BROKEN)]
    if wrong:
        named = ", ".join(map(str, wrong[:_NAMED_MAX]))
        evidence = f"{len(wrong)} of {len(cores)} cores computed another result, or none: {named}"
        return BurnInPart(name="cpu", verdict="fault", evidence=evidence, cores_tested=len(cores))
    untested = [core for core, code in found.items() if code != _RIGHT]
    if untested:
        named = ", ".join(map(str, untested[:_NAMED_MAX]))
        evidence = f"{len(untested)} of {len(cores)} cores were not tested: {named}"
        return BurnInPart(name="cpu", verdict="unknown", evidence=evidence, cores_tested=len(cores) - len(untested))
    return BurnInPart(name="cpu", verdict="healthy", cores_tested=len(cores))


def _start(core: int, seconds: float, computation: Callable[[], str]) -> int:
    parent = os.getpid()
    child = os.fork()
    if child != 0:
        return child
    code = _UNTESTED
    try:
        tether(parent)
        os.sched_setaffinity(0, {core})
        os.nice(_NICE_MOST)
        code = _repeated(seconds, computation)
    finally:
        os._exit(code)


def _repeated(seconds: float, computation: Callable[[], str]) -> int:
    deadline = time.monotonic() + seconds
    while True:
        if computation() != EXPECTED:
            return _WRONG
        if time.monotonic() >= deadline:
            return _RIGHT
