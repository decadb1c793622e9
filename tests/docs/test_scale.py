"""The page of scale: each figure of a fleet follows from the measured bytes and from the fleet's size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/explanation/scale.md"
USED_SHARE = 0.8
DAY_SECONDS, MONTH_DAYS, YEAR_DAYS = 86_400, 30, 365
EVENTS = 6
HOURS = re.compile(r"([\d,]+) h")
PREFIXES = {"GB": 1e9, "TB": 1e12}


def rows() -> dict[str, list[str]]:
    """The cells of each row of the page's tables, by the first of them."""
    found = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("|") and not line.startswith("|--"):
            name, *cells = (cell.strip().strip("*") for cell in line.strip("|").split("|"))
            found[name] = cells
    return found


def amount(text: str) -> float:
    """A number with its prefix: `1.8 TB` is 1.8e12, `89/s` is 89, `4 %` is 0.04."""
    match = re.match(r"([\d.,]+)\s*(GB|TB|%)?", text)
    assert match is not None, text
    number = float(match[1].replace(",", ""))
    return number / 100 if match[2] == "%" else number * PREFIXES.get(match[2], 1.0)


def measured(name: str) -> list[float]:
    """The numbers of a row's first cell, which may be a sum."""
    return [amount(part) for part in rows()[name][0].split(" + ")]


@pytest.fixture(params=range(4))
def fleet(request: pytest.FixtureRequest) -> int:
    """A column of the table of fleets."""
    return int(request.param)


def cell(name: str, fleet: int) -> float:
    """The amount of a row in a column."""
    return amount(rows()[name][fleet])


def rate_of(fleet: int) -> float:
    """Allocations that such a fleet begins in a second."""
    slots = float(rows()["fleet"][fleet].split(", ")[1].split()[0].replace(",", ""))
    hours = HOURS.match(rows()["length of an allocation"][fleet])
    assert hours is not None
    return slots * USED_SHARE / (float(hours[1]) * 3_600)


def about(expected: float) -> object:
    """Two digits are printed."""
    return pytest.approx(expected, rel=0.1)


def test_rates_follow_from_the_slots(fleet: int) -> None:
    creates = amount(rows()["creates, one API process"][0])
    assert cell("allocations", fleet) == about(rate_of(fleet))
    assert cell("events", fleet) == about(EVENTS * rate_of(fleet))
    assert cell("of the measured creates/s", fleet) == pytest.approx(rate_of(fleet) / creates, rel=0.2)


def test_bytes_follow_from_the_rates(fleet: int) -> None:
    (tasks,), (certificate,) = measured("signed tasks with their results (`node_tasks`)"), measured("wipe certificate")
    kept = tasks + certificate + sum(measured("allocation, timeline, claim"))
    forever = sum(measured("audit")) + sum(measured("ledger, metering"))
    per_day = rate_of(fleet) * DAY_SECONDS
    assert cell("write-ahead log", fleet) / sum(measured_log()) == about(per_day)
    assert cell(f"rows of allocations ({kept:,.0f} bytes each)", fleet) == about(
        kept * per_day * cell("days until archived", fleet)
    )
    assert cell(f"audit, ledger, metering, each year ({forever:,.0f} bytes each)", fleet) == about(
        forever * per_day * YEAR_DAYS
    )
    (log,) = measured("log in PostgreSQL, 6 events")
    assert cell(f"log, one month ({log:,.0f} bytes each)", fleet) == about(log * per_day * MONTH_DAYS)
    (stream,) = measured("events in one NATS server, 6 events")
    assert cell("stream in NATS, one month, for each server", fleet) == about(stream * per_day * MONTH_DAYS)


def measured_log() -> list[float]:
    """Bytes of write-ahead log for one allocation: the first of the page's two rows of that name."""
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith("| write-ahead log |"))
    return [amount(line.split("|")[2].strip())]


def test_cores_follow_from_the_requests_of_nodes(fleet: int) -> None:
    nodes = float(rows()["fleet"][fleet].split()[0].replace(",", ""))
    requests = cell("heartbeats and polls, one each a minute", fleet)
    assert requests == about(2 * nodes / 60)
    (each,) = (
        amount(line.split(" of a core, ")[1].split(" ms")[0])
        for line in PAGE.read_text().splitlines()
        if "of a core, 1" in line
    )
    assert cell(f"cores for them, at {each:g} ms", fleet) == pytest.approx(requests * each / 1e3, abs=0.02)
