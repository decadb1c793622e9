"""The page of a soak: what was compared, in tables, and plots over the whole time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import pygal
from pygal.style import CleanStyle

from tests.campaign.soak import judging
from tests.campaign.soak.judging import Comparison
from tests.campaign.soak.samples import Sample, Soak

MEGABYTE = 1_000_000
POINTS_MAX = 90
TABLES_SHOWN = 12


def write_report(soak: Soak, directory: Path) -> None:
    """Write `soak.md` and its plots beside it."""
    for name, title, series in _plots(soak.samples):
        _plot(directory / f"{name}.svg", title, soak.samples, series)
    (directory / "soak.md").write_text("\n".join(page_of(soak)) + "\n")


def page_of(soak: Soak) -> list[str]:
    """The page's lines."""
    problems = judging.judge(soak)
    first, last = soak.samples[0], soak.samples[-1]
    minutes = (last.seconds - first.seconds) / 60
    writes = last.work["writes"] - first.work["writes"]
    events = last.work["events"] - first.work["events"]
    verdict = "Nothing grew and no promise was broken." if not problems else f"{len(problems)} findings, below."
    work = (
        f"{writes:,} writes with a definite outcome and {events:,} events, {writes / minutes / 60:.1f} and "
        f"{events / minutes / 60:.1f} a second; the parts of the stack used {_busy(soak.samples):.2f} cores."
    )
    return [
        f"Seed {soak.seed}, {soak.minutes:g} minutes on {soak.cores} cores, {len(soak.samples)} samples. {verdict}",
        "",
        work,
        "",
        *(f"- {problem}" for problem in problems),
        *([""] if problems else []),
        *_table("memory, MB", judging.memory(soak.samples), MEGABYTE),
        *_table("open files and sockets, least", judging.descriptors(soak.samples)),
        *_table("threads, least", judging.threads(soak.samples)),
        *_table("files of a part, MB", judging.directories(soak.samples), MEGABYTE),
        *_table("connections to PostgreSQL, most", judging.connections(soak.samples)),
        *_table("rows", _largest(judging.rows(soak.samples))),
        *_table("tables and indexes, MB", _largest(judging.sizes(soak.samples)), MEGABYTE),
        *_bloat(soak),
    ]


def _busy(samples: Sequence[Sample]) -> float:
    names = judging.steady_parts(samples)
    first, last = samples[0], samples[-1]
    used = sum(last.processes[name].processor_seconds - first.processes[name].processor_seconds for name in names)
    return used / (last.seconds - first.seconds)


def _largest(comparisons: Sequence[Comparison]) -> list[Comparison]:
    return sorted(comparisons, key=lambda one: -one.last)[:TABLES_SHOWN]


def _table(title: str, comparisons: Iterable[Comparison], unit: float = 1.0) -> list[str]:
    digits = 1 if unit > 1 else 0
    lines = [f"| {title} | second third | last third | ratio | limit |", "|---|---|---|---|---|"]
    for one in comparisons:
        limit = "-" if one.limit is None else f"{one.limit:.2f}"
        missed = "" if one.kept else " **missed**"
        thirds = f"{one.second / unit:,.{digits}f} | {one.last / unit:,.{digits}f}"
        lines.append(f"| {one.name} | {thirds} | {one.ratio:.3f} | {limit}{missed} |")
    return [*lines, ""]


def _bloat(soak: Soak) -> list[str]:
    lines = ["| at the end, MB with indexes | size | fresh copy | ratio |", "|---|---|---|---|"]
    for one in soak.bloat[:TABLES_SHOWN]:
        sizes = f"{one.size_bytes / MEGABYTE:,.1f} | {one.copy_bytes / MEGABYTE:,.1f}"
        lines.append(f"| {one.table} | {sizes} | {one.size_bytes / max(1, one.copy_bytes):.2f} |")
    return lines


Series = dict[str, Sequence[float]]


def _plots(samples: Sequence[Sample]) -> list[tuple[str, str, Series]]:
    parts = judging.steady_parts(samples)
    ours = [name for name in parts if not name.startswith("agent ")]
    tables = [one.name for one in _largest(judging.sizes(samples)) if not one.name.startswith("indexes of ")]
    roles = sorted({role for one in samples for role in one.connections})
    return [
        ("memory", "Memory of each part, MB", _of(samples, ours, lambda s, n: s.processes[n].memory_bytes / MEGABYTE)),
        ("descriptors", "Open files and sockets", _of(samples, parts, lambda s, n: s.processes[n].descriptors)),
        ("connections", "Connections to PostgreSQL", _of(samples, roles, lambda s, n: s.connections.get(n, 0))),
        (
            "tables", "Tables with indexes, MB",
            _of(samples, tables, lambda s, n: (s.tables[n].table_bytes + s.tables[n].index_bytes) / MEGABYTE),
        ),
        ("latencies", "Writes of the clients, ms", _of(samples, ("p50", "p99"), lambda s, n: s.latencies_ms.get(n, 0.0))),
    ]  # fmt: skip


def _of(samples: Sequence[Sample], names: Iterable[str], value: Callable[[Sample, str], float]) -> Series:
    return {name: [round(value(sample, name), 2) for sample in samples] for name in names}


def _plot(file: Path, title: str, samples: Sequence[Sample], series: Series) -> None:
    """One line for each name over the minutes; no script, so that a page may show it."""
    step = max(1, len(samples) // POINTS_MAX)
    chart = pygal.XY(
        title=title, x_title="minutes", style=CleanStyle, js=[], show_dots=False, width=900, height=420,
        legend_at_bottom=True, legend_at_bottom_columns=4, disable_xml_declaration=True,
    )  # fmt: skip
    for name, values in series.items():
        points = [(round(one.seconds / 60, 2), value) for one, value in zip(samples, values, strict=True)]
        chart.add(name, points[::step])
    chart.add_xml_filter(_without_scripts)
    file.write_text(chart.render())


def _without_scripts(root: Element) -> Element:
    for parent in list(root.iter()):
        for script in [child for child in parent if str(child.tag).endswith("script")]:
            parent.remove(script)
    return root
