"""The wipe certificate of each former tenancy, verified as its tenant would: by `berth certificate verify`, without a server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

from berth.local.demo.machines.steps import NotProven, ProvenSteps, StepName
from berth.local.demo.machines.tenancies import Tenancy
from berth.local.demo.stage import Player, Stage
from berth.local.machines.plan import DISK_SERIAL
from berth.process.json_objects import JsonObject

VERIFY_SECONDS_MAX = 120.0


async def verify_certificate_of(stage: Stage, player: Player, former: Tenancy, steps: ProvenSteps) -> None:
    """Store the certificate and verify it; the same of another allocation, and a changed one, must be refused. Raises
    `MachineGivenUp`."""
    machine, allocation_id = former.machine.name, former.active.allocation_id
    roots = stage.stack.authority.root_keys
    with steps.step(machine, StepName.CERTIFICATE) as step:
        async with stage.client(player) as berth:
            document = (await berth.get_wipe_certificate(allocation_id)).model_dump(mode="json")
        file = stage.stack.state.path / f"wipe-{machine}.json"
        file.write_text(json.dumps(document, indent=2) + "\n")
        verified = await verify(file, allocation_id, roots)
        steps.say(f"$ berth certificate verify {file} --allocation {allocation_id} --root-keys {roots}")
        for line in verified.stdout.splitlines():
            steps.say(f"    {line}")
        if verified.returncode != 0:
            raise NotProven(verified.stderr.strip())
        require_disk(verified.stdout)
        await require_refused(file, uuid4(), roots, "certificate_other_allocation")
        changed = file.with_suffix(".changed")
        changed.write_text(json.dumps(with_a_changed_statement(document)))
        try:
            await require_refused(changed, allocation_id, roots, "certificate_statement_invalid")
        finally:
            changed.unlink()
        step.found = "wiped and signed; for another allocation, and with a changed statement, it is refused"


def require_disk(shown: str) -> None:
    """Require that what `berth certificate verify` printed is about the machine's disk. Raises `NotProven`."""
    if "wiped" not in shown or f"disk {DISK_SERIAL} (" not in shown:
        raise NotProven(f"the certificate does not say that disk {DISK_SERIAL} was wiped")


def with_a_changed_statement(document: JsonObject) -> JsonObject:
    """The certificate with one character of what the deploy system signed exchanged."""
    payload = document["statement"]["payload"]
    place = len(payload) // 2
    other = "B" if payload[place] == "A" else "A"
    statement = {**document["statement"], "payload": payload[:place] + other + payload[place + 1 :]}
    return {**document, "statement": statement}


async def require_refused(file: Path, allocation_id: UUID, roots: Path, code: str) -> None:
    """Require that the file proves nothing about the allocation, for this reason. Raises `NotProven`."""
    refused = await verify(file, allocation_id, roots, "--output", "json")
    if refused.returncode != 1 or f'"{code}"' not in refused.stdout:
        raise NotProven(f"{code} was expected; exit code {refused.returncode}: {refused.stdout.strip()}")


async def verify(file: Path, allocation_id: UUID, roots: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What `berth certificate verify` says, as a process that knows no server."""
    words: Sequence[str] = (
        "certificate", "verify", str(file), "--allocation", str(allocation_id), "--root-keys", str(roots), *options,
    )  # fmt: skip
    command = [sys.executable, "-m", "berth.cli", *words]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=VERIFY_SECONDS_MAX
    )  # fmt: skip
