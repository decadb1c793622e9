"""NVIDIA's diagnosis of GPUs, `dcgmi diag`, where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from berth.process.json_objects import JsonObject
from node_agent.burn_in.tether import tethered
from node_agent.discovery.children import NoAnswer, run_bounded
from node_agent.discovery.reading import Gaps, pci_address, printable
from node_agent.wire.burn_in import BurnInPart
from node_agent.wire.health import EVIDENCE_MAX

OUTPUT_BYTES_MAX = 4 * 2**20
LIST_SECONDS_MAX = 30.0
_SUBJECT = "dcgm"
# "| 0      | Name: NVIDIA H100 |", then "|        | PCI Bus ID: 00000000:07:00.0 |"
_ROW = re.compile(r"^\|\s*(\d{1,4})?\s*\|\s*(.*?)\s*\|\s*$", re.M)
_BUS = "PCI Bus ID:"
_NAMED_MAX = 4


async def run_dcgm(
    level: int, gpus: Sequence[str], environment: Mapping[str, str], deadline: float, gaps: Gaps
) -> BurnInPart | None:
    """The verdict of DCGM about these GPUs; None if it did not run, which is a gap.

    It never runs on all GPUs: while it runs, allocations may begin on slots that are not under test. `deadline`: of
    `time.monotonic`.
    """
    command = shutil.which("dcgmi", path=environment.get("PATH"))
    if level == 0 or command is None:
        gaps.add(_SUBJECT, "is not installed" if level else "is switched off by BERTH_AGENT_BURN_IN_DCGM_LEVEL")
        return None
    if not gpus:
        gaps.add(_SUBJECT, "left out: the GPUs of the slots under test are not known")
        return None
    try:
        selected = await _selected(command, gpus, environment, min(LIST_SECONDS_MAX, _left(deadline)))
        arguments = (command, "diag", "--run", str(level), "--json", *selected)
        # Its exit code also says that a test failed; the output has the same.
        _, output = await run_bounded(tethered(*arguments), environment, _left(deadline), OUTPUT_BYTES_MAX)
    except NoAnswer as error:
        return BurnInPart(name="dcgm", verdict="unknown", evidence=printable(str(error))[:EVIDENCE_MAX])
    return judge(output, gaps)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


async def _selected(command: str, gpus: Sequence[str], environment: Mapping[str, str], seconds: float) -> Sequence[str]:
    """The option that restricts a diagnosis to these GPUs. Raises NoAnswer if DCGM does not know one of them."""
    listing = tethered(command, "discovery", "--list")
    _, output = await run_bounded(listing, environment, seconds, OUTPUT_BYTES_MAX)
    known = gpu_ids(output.decode(errors="replace"))
    missing = [address for address in gpus if address not in known]
    if missing:
        raise NoAnswer(f"DCGM does not know {len(missing)} of the GPUs: {', '.join(missing[:_NAMED_MAX])}")
    return ("--gpuList", ",".join(str(known[address]) for address in gpus))


def gpu_ids(listing: str) -> dict[str, int]:
    """DCGM's number of each GPU, by its PCI address, from the table of `dcgmi discovery --list`."""
    found: dict[str, int] = {}
    current: int | None = None
    for number, text in _ROW.findall(listing):
        current = int(number) if number else current
        if current is not None and text.startswith(_BUS):
            address = pci_address(text.removeprefix(_BUS).strip())
            if address is not None:
                found[address] = current
    return found


def judge(output: bytes, gaps: Gaps) -> BurnInPart | None:
    """The verdict of a diagnosis in JSON: a fault if a test failed; None, with a gap, if every test was skipped."""
    try:
        # A warning may precede the object.
        said = json.loads(output[output.index(b"{") : output.rindex(b"}") + 1])
    except (ValueError, RecursionError):
        return BurnInPart(name="dcgm", verdict="unknown", evidence="the answer of dcgmi is no JSON")
    results = list(_results(said))
    failed = [(name, result) for name, result in results if _status(result) == "fail"]
    if failed:
        evidence = "; ".join(_described(name, result) for name, result in failed[:_NAMED_MAX])
        return BurnInPart(name="dcgm", verdict="fault", evidence=printable(evidence)[:EVIDENCE_MAX])
    for name, result in results:
        if _status(result) == "warn":
            gaps.add(_SUBJECT, _described(name, result))
    passed = sum(_status(result) == "pass" for _, result in results)
    if passed:
        return BurnInPart(name="dcgm", verdict="healthy", evidence=f"{passed} of {len(results)} results passed")
    if results and all(_status(result) == "skip" for _, result in results):
        gaps.add(_SUBJECT, "every test was skipped: it does not support these GPUs")
        return None
    why = said.get("runtime_error") if isinstance(said, dict) else None
    evidence = printable(str(why))[:EVIDENCE_MAX] if why else "no test of dcgmi passed"
    return BurnInPart(name="dcgm", verdict="unknown", evidence=evidence)


def _results(said: Any) -> Iterator[tuple[str, JsonObject]]:
    """Name of the test and each of its results: of version 3 ("DCGM GPU Diagnostic") and 4 ("DCGM Diagnostic")."""
    roots = [said, *said.values()] if isinstance(said, dict) else []
    for root in roots:
        for category in _listed(root, "test_categories"):
            for test in _listed(category, "tests"):
                for result in _listed(test, "results"):
                    yield str(test.get("name", "?")), result


def _listed(said: Any, name: str) -> Iterator[JsonObject]:
    items = said.get(name) if isinstance(said, dict) else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield item


def _status(result: JsonObject) -> str:
    return str(result.get("status", "")).lower().removesuffix("ped")


def _described(name: str, result: JsonObject) -> str:
    gpu = next((result[key] for key in ("gpu_id", "gpu_ids", "entity_id") if key in result), "?")
    warnings = result.get("warnings")
    first = warnings[0] if isinstance(warnings, list) and warnings else warnings
    text = first.get("warning") if isinstance(first, dict) else first
    return f"{name} of GPU {gpu}: {text or _status(result)}"
