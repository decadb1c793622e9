"""A soak fails for each thing that grows, and for nothing else; what it stores is what it judged; it reads a real database."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from tests.campaign.history import History
from tests.campaign.soak.__main__ import main
from tests.campaign.soak.judging import HISTORIES, changed_parts, judge, thirds
from tests.campaign.soak.reporting import page_of, write_report
from tests.campaign.soak.samples import Bloat, ProcessUse, Sample, Soak, TableUse, read_soak
from tests.campaign.soak.sampling import Sampler, measure_bloat, table_uses

SAMPLES = 30


def soak(**changes: Callable[[int], int]) -> Soak:
    """A flat one of 30 samples; each change is a function of the sample's number."""

    def value(name: str, number: int, flat: int) -> int:
        return changes[name](number) if name in changes else flat

    def sample(number: int) -> Sample:
        def use(name: str) -> ProcessUse:
            return ProcessUse(
                value(f"{name}_memory", number, 10**8), value(f"{name}_files", number, 50),
                value(f"{name}_threads", number, 4), number * 5.0, f"process {value(f'{name}_process', number, 1)}",
            )  # fmt: skip

        def table(name: str) -> TableUse:
            rows, size = value(f"{name}_rows", number, 10_000), value(f"{name}_bytes", number, 20_000_000)
            return TableUse(size, 8_000_000, rows)

        processes = {name: use(name) for name in ("api", "temporal", "postgres")}
        connections = {"berth_worker": value("connections", number, 10)}
        tables = {"tasks_waiting": table("queue"), "ledger": table("history")}
        directories = {"agent a": value("agent_bytes", number, 10**7), "nats": value("nats_bytes", number, 10**7)}
        work = {"writes": number * 10, "events": number * 20}
        return Sample(number * 30.0, processes, connections, tables, work, {}, directories)

    samples = [sample(number) for number in range(1, SAMPLES + 1)]
    return Soak(7, 15.0, 2, samples, [Bloat("ledger", 28_000_000, 20_000_000)], [])


def leaks(number: int) -> int:
    return 10**8 + number * 500_000


GROWTHS: list[tuple[str, dict[str, Callable[[int], int]], str]] = [
    ("memory", {"api_memory": leaks}, "memory of api"),
    ("open files", {"api_files": lambda n: 50 + n}, "open files of api"),
    ("threads", {"api_threads": lambda n: 4 + n}, "threads of api"),
    ("files of an agent", {"agent_bytes": lambda n: 10**7 + n * 400_000}, "files of agent a"),
    ("connections", {"connections": lambda n: 10 + (n > 25)}, "connections of berth_worker"),
    ("rows of what is no history", {"queue_rows": lambda n: 10_000 + n * 100}, "rows of tasks_waiting"),
    ("pages without rows", {"queue_bytes": lambda n: 20_000_000 + n * 500_000}, "size of tasks_waiting"),
    ("a history faster than its rows", {"history_bytes": lambda n: 20_000_000 + n * 500_000}, "size of ledger"),
]


@pytest.mark.parametrize(("changes", "said"), [row[1:] for row in GROWTHS], ids=[row[0] for row in GROWTHS])
def test_each_growth_is_found(changes: dict[str, Callable[[int], int]], said: str) -> None:
    (found,) = judge(soak(**changes))
    assert found.startswith(f"{said} grew")


STEADY: list[tuple[str, dict[str, Callable[[int], int]]]] = [
    ("nothing", {}),
    ("caches that fill in the first third", {"api_memory": lambda n: min(10**8 + n * 10**7, 2 * 10**8)}),
    ("one peak", {"api_memory": lambda n: 3 * 10**8 if n == 27 else 10**8}),
    ("requests under way", {"api_files": lambda n: 50 + n % 7}),
    ("a pool that had been as large before", {"connections": lambda n: 12 if n in (15, 25) else 10}),
    ("a server for development", {"temporal_memory": leaks}),
    ("files that a session keeps", {"postgres_files": lambda n: 1_000 + n * 100}),
    ("a store", {"nats_bytes": lambda n: n * 10**7}),
    ("a history with its rows", {"history_rows": lambda n: n * 1_000, "history_bytes": lambda n: n * 2_000_000}),
    ("what waits at a moment", {"queue_rows": lambda n: 10_000 + n}),
]


@pytest.mark.parametrize("changes", [row[1] for row in STEADY], ids=[row[0] for row in STEADY])
def test_what_is_steady_is_not_found(changes: dict[str, Callable[[int], int]]) -> None:
    assert judge(soak(**changes)) == []


def test_a_broken_promise_fails_a_soak() -> None:
    broken = dataclasses.replace(soak(), violations=["P1: two claims of one unit"])
    assert judge(broken) == ["P1: two claims of one unit"]
    assert "- P1: two claims of one unit" in page_of(broken)


def test_a_part_that_began_anew_is_not_taken_for_steady() -> None:
    assert judge(soak(api_process=lambda n: 1 + (n > 20))) == ["api was 2 processes"]
    flat = soak()
    missing = dataclasses.replace(flat.samples[3], processes={"temporal": flat.samples[3].processes["temporal"]})
    assert judge(dataclasses.replace(flat, samples=[*flat.samples[:3], missing, *flat.samples[4:]])) == [
        "api did not run in 1 samples", "postgres did not run in 1 samples",
    ]  # fmt: skip


def test_a_sampling_that_ended_early_fails_a_soak() -> None:
    flat = soak()
    assert judge(dataclasses.replace(flat, samples=flat.samples[:12])) == ["12 of 30 samples were taken"]

    class NoStage:
        """Without a database."""

    sampler = Sampler(NoStage(), History(1), 60, 30, lambda _: None)  # type: ignore[arg-type]
    sampler.run()
    assert sampler.problem is not None
    assert sampler.problem.startswith("the sampling ended after 0 samples: AttributeError")


def test_what_was_measured_is_kept_after_each_sample(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    stage, history = SimpleNamespace(endpoints=SimpleNamespace(database_url=database_url)), History(1)
    history.began = time.monotonic()
    sampler = Sampler(stage, history, 0.2, 0.1, lambda sampler: taken.append(len(sampler.samples)))  # type: ignore[arg-type]
    monkeypatch.setattr(sampler, "_look", lambda _: soak().samples[0])
    sampler.run()
    assert sampler.problem is None
    assert taken == [1, 2, 2], "after each sample, and with the bloat at the end"


def test_two_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        thirds(soak().samples[:2])


def test_what_is_stored_is_judged_and_drawn_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = soak(api_memory=leaks)
    before.write(tmp_path / "samples.json")
    assert read_soak(tmp_path / "samples.json") == before
    assert main(["--report", str(tmp_path / "samples.json"), "--directory", str(tmp_path)]) == 1
    assert "GREW OR BROKE: memory of api grew" in capsys.readouterr().out
    write_report(soak(), tmp_path)
    assert "Nothing grew and no promise was broken." in (tmp_path / "soak.md").read_text()
    plots = [file.read_text() for file in sorted(tmp_path.glob("*.svg"))]
    assert len(plots) == 5
    assert not any("<script" in plot for plot in plots)


@pytest.mark.parametrize("arguments", [["--minutes", "0.5"], ["--minutes", "nan"], ["--every-seconds", "0"]])
def test_a_soak_that_says_nothing_is_refused(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as refused:
        main([*arguments, "--directory", str(tmp_path)])
    assert refused.value.code == 2


def test_histories_are_tables_of_the_schema_and_bloat_is_seen(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as database:
        assert not {*HISTORIES} - {*table_uses(database)}
        database.execute("create table padded (id bigint primary key, filling text)")
        database.execute("insert into padded select n, repeat('x', 500) from generate_series(1, 8000) n")
        database.execute("delete from padded where id % 4 <> 0")
        (found,) = [one for one in measure_bloat(database) if one.table == "padded"]
        assert found.size_bytes > 3 * found.copy_bytes
        assert table_uses(database)["padded"].rows == 2_000
        assert "soak_copy" not in table_uses(database)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_minute_of_a_whole_stack(tmp_path: Path) -> None:
    """So short a soak may find growth, and no broken promise; every sample has every part."""
    main(["--minutes", "1", "--every-seconds", "5", "--directory", str(tmp_path)])
    found = read_soak(tmp_path / "samples.json")
    assert (len(found.samples), found.violations) == (12, [])
    assert changed_parts(found.samples) == []
    last = found.samples[-1]
    assert {"api", "relay", "worker", "webhooks", "postgres", "nats", "temporal"} <= {*last.processes}
    assert last.work["writes"] > 100
    assert {name for name, taken in last.directory_bytes.items() if taken == 0} == set()
    assert [one.table for one in found.bloat]
