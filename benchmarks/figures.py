"""What a benchmark answers: figures with their limits, one printed line each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured value. `limit` is the budget of DESIGN §10 (None: printed for information); `over` what it was divided by."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    over: str = ""
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the limit is kept."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        """Name, figure, limit, what the ratio is of, and the verdict."""
        limit = (
            "" if self.limit is None else f"limit {'>=' if self.at_least else '<='} {_number(self.limit)} {self.unit}"
        )
        verdict = "-" if self.limit is None else ("ok" if self.ok else "MISSED")
        value = f"{_number(self.value)} {self.unit}"
        return f"{self.name:<34} {value:>14}  {limit:<22} {verdict:<7} {' '.join(filter(None, (self.over, self.note)))}".rstrip()


def _number(value: float) -> str:
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def percentile(values: list[float], fraction: float) -> float:
    """The value below which `fraction` of all lie; raises ValueError for none."""
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]
