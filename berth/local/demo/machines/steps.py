"""What was proven of each machine, step by step; what was not proven is never left out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import asyncssh
import psycopg

from berth.cli.known_stack import StackProblem
from berth.client import BerthError
from berth.local.demo.act import Say
from berth.process.json_objects import JsonObject


class StepName(StrEnum):
    """The steps of each machine in their order; the value is what the table says."""

    BMC = "BMC enrolled at its site, machine described"
    INSPECT = "inspected by the deploy system"
    SERVICE = "approved and put into service"
    DEPLOY = "deployed for the first tenant"
    WRITE = "SSH with the verified host key, marker written"
    CONTROL = "the marker is on the raw disk (control)"
    RELEASE = "released: wiped, read back, off"
    GONE = "raw disk: marker and all else gone"
    NEXT = "deployed for the next tenant"
    CLEAN = "the next tenant finds nothing"
    CERTIFICATE = "wipe certificate verified offline"


class NotProven(Exception):
    """A claim that does not hold; the message says what was found instead."""


class MachineGivenUp(Exception):
    """A step of a machine was not proven; `ProvenSteps` has the reason."""


FORESEEN = (
    NotProven, BerthError, StackProblem, asyncssh.Error, OSError, psycopg.Error, TimeoutError, subprocess.CalledProcessError,
)  # fmt: skip


@dataclass
class Step:
    """One step of one machine: how long it took, what was found, and why it is not proven (None: it is)."""

    machine: str
    name: StepName
    seconds: float = 0.0
    found: str = ""
    why: str | None = None


@dataclass
class ProvenSteps:
    """The steps of these machines, and what is to be proven of all of them together."""

    machines: Sequence[str]
    say: Say
    recorded: list[Step] = field(default_factory=list)
    together: list[tuple[str, bool]] = field(default_factory=list)

    @contextmanager
    def step(self, machine: str, name: StepName) -> Iterator[Step]:
        """Record the block as this step. Raises `MachineGivenUp` in place of a foreseen failure."""
        step, began = Step(machine, name), time.monotonic()
        try:
            yield step
        except FORESEEN as error:
            self._record(step, began, str(error) or type(error).__name__)
            raise MachineGivenUp(machine) from error
        except BaseException:
            self._record(step, began, "it was interrupted")
            raise
        self._record(step, began, None)

    def _record(self, step: Step, began: float, why: str | None) -> None:
        step.seconds, step.why = time.monotonic() - began, why
        self.recorded.append(step)
        found = f": {step.found}" if step.found else ""
        self.say(
            f"{step.machine}: {step.name.value}{found} ({step.seconds:.0f} s){'' if why is None else f' NOT: {why}'}"
        )

    def check(self, claim: str, held: bool) -> None:
        """Record a claim about all machines together."""
        self.together.append((claim, held))
        self.say(f"{claim}: {'yes' if held else 'NO'}")

    def of(self, machine: str, name: StepName) -> Step | None:
        """The step as it was recorded; None: it did not run. Of several the one that was not proven counts."""
        steps = [step for step in self.recorded if (step.machine, step.name) == (machine, name)]
        return min(steps, key=lambda step: step.why is None, default=None)

    @property
    def held(self) -> bool:
        """Whether every step of every machine ran and was proven, and every claim about all of them held."""
        return bool(self.machines) and not self.failures()

    def failures(self) -> list[str]:
        """A sentence for each machine with a step that was not proven, and for each claim that did not hold."""
        said = []
        for machine in self.machines:
            found = [(name, self.of(machine, name)) for name in StepName]
            for name, step in found:
                if step is not None and step.why is not None:
                    said.append(f"{machine}: not proven: {name.value}: {step.why}")
            left = [name for name, step in found if step is None]
            if left:
                said.append(f"{machine}: {len(left)} of {len(found)} steps did not run, the first: {left[0].value}")
        if self.machines and not self.together:
            said.append("the promises were not checked")
        return said + [f"did not hold: {claim}" for claim, held in self.together if not held]

    def report(self, seconds: float) -> JsonObject:
        """As data, for a table and for programs."""
        return {
            "held": self.held,
            "seconds": round(seconds, 1),
            "machines": [
                {"name": machine, "steps": [self._data(machine, name) for name in StepName]}
                for machine in self.machines
            ],
            "checks": [{"claim": claim, "held": held} for claim, held in self.together],
            "failures": self.failures(),
        }

    def _data(self, machine: str, name: StepName) -> JsonObject:
        step = self.of(machine, name)
        if step is None:
            return {
                "step": name.name.lower(),
                "title": name.value,
                "proven": False,
                "ran": False,
                "seconds": None,
                "found": "",
            }
        return {
            "step": name.name.lower(), "title": name.value, "proven": step.why is None, "ran": True,
            "seconds": round(step.seconds, 1), "found": step.found if step.why is None else step.why,
        }  # fmt: skip
