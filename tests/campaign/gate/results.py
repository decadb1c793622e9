"""The result of each run of the gate, one file a run, and the hash of the product that it belongs to."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PRODUCT = ("orchestrator", "worker", "outbox_relay", "node_agent", "migrations", "berth")
"""The packages whose code decides whether a result still counts."""


def product_hash(root: Path = ROOT) -> str:
    """The SHA-256 over the name and content of every file of the product's packages."""
    digest = hashlib.sha256()
    for package in PRODUCT:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content = path.read_bytes()
                digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
                digest.update(content)
    return digest.hexdigest()


UNDONE_SHARE_MAX = 0.1
"""So many of its faults a run may fail to carry out: a process that another fault has ended cannot be frozen."""


@dataclass(frozen=True)
class Run:
    """One campaign of the gate."""

    seed: int
    minutes: float
    calm: bool
    """Without faults."""
    ha: bool = False
    """With three PostgreSQL and three NATS servers, and their faults."""

    @property
    def name(self) -> str:
        """How it is called in files and lines."""
        return f"{'calm' if self.calm else 'ha' if self.ha else 'faults'}-{self.seed}-{self.minutes:g}"

    def __str__(self) -> str:
        """For a person."""
        faults = "without faults" if self.calm else "with faults"
        return f"seed {self.seed}, {self.minutes:g} min, {faults}{', three servers each' if self.ha else ''}"


@dataclass(frozen=True)
class Result:
    """What one run found. `problems` is empty if it passed."""

    product: str
    run: Run
    faults: int
    writes: int
    ambiguous: int
    resolved: int
    violations: int
    problems: list[str] = field(default_factory=list)
    recoveries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems


def result_of(product: str, run: Run, report: dict[str, Any]) -> Result:
    """Judge the report that `tests.campaign` wrote. Raises KeyError or TypeError if it is none."""
    violations = [f"{v['check']}: {v['sentence']}" for v in report["violations"]]
    faults = sum(report["faults"].values())
    writes = sum(sum(outcomes.values()) for outcomes in report["operations"].values())
    problems = [f"violation: {violation}" for violation in violations]
    unresolved = report["ambiguous"] - report["ambiguous_resolved"]
    if unresolved:
        problems.append(f"{unresolved} ambiguous outcomes were not resolved")
    problems += [f"late: {_late(recovery)}" for recovery in report["recoveries"] if recovery["late"]]
    if not run.calm and not faults:
        problems.append("no fault was carried out")
    undone = len(report["faults_undone"])
    if undone > UNDONE_SHARE_MAX * (faults + undone):
        problems.append(f"{undone} of {faults + undone} faults were not carried out: {report['faults_undone'][0]}")
    if not writes:
        problems.append("nothing was written")
    return Result(
        product, run, faults, writes, report["ambiguous"], report["ambiguous_resolved"], len(violations), problems,
        report["recoveries"],
    )  # fmt: skip


def _late(recovery: dict[str, Any]) -> str:
    taken = recovery["undisturbed_seconds"]
    seconds = "no allocation became active" if taken is None else f"{taken:.1f} s"
    return f"{recovery['fault']} ({recovery['target']}): {seconds}, budget {recovery['budget_seconds']:.0f} s"


class Results:
    """The result files of a directory. A file appears whole or not at all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, result: Result) -> None:
        """Store it durably, in place of an earlier one of the same run and product."""
        file = self._file(result.product, result.run)
        half = file.with_suffix(".half")
        with half.open("w") as written:
            json.dump(asdict(result), written, indent=1)
            written.flush()
            os.fsync(written.fileno())
        half.replace(file)

    def read(self, product: str, run: Run) -> Result | None:
        """The result of this run with this product; None if there is none, or only a damaged or a foreign one."""
        return self._read(self._file(product, run), product, run)

    def all(self, product: str, runs: Iterable[Run]) -> list[Result]:
        """The results that there are, in the order of the runs."""
        return [result for run in runs if (result := self.read(product, run)) is not None]

    def _file(self, product: str, run: Run) -> Path:
        return self.directory / f"{product[:12]}-{run.name}.json"

    @staticmethod
    def _read(file: Path, product: str, run: Run) -> Result | None:
        try:
            document = json.loads(file.read_text())
            result = Result(**{**document, "run": Run(**document["run"])})
            whole = all(isinstance(getattr(result, name), int) for name in ("faults", "writes", "violations"))
            whole = whole and isinstance(result.problems, list) and isinstance(result.recoveries, list)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return result if whole and (result.product, result.run) == (product, run) else None
