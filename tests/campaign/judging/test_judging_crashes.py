"""Crashes are found in logs of servers, and kills are not."""

from __future__ import annotations

from pathlib import Path

from tests.campaign.judging.judging_crashes import judge_crashes

LINE = "2026-12-01 11:18:06 UTC [22567] LOG:  client backend (PID 22708) was terminated by signal {}\n"


def test_a_crash_is_found_and_a_kill_is_not(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text(LINE.format("9: Killed"))
    assert list(judge_crashes([log, tmp_path / "absent.log"])) == []
    log.write_text(LINE.format("9: Killed") + LINE.format("11: Segmentation fault") + LINE.format("6: Aborted"))
    assert [violation.check for violation in judge_crashes([log])] == ["no crash"] * 2
    panic = (
        '2026-12-01 11:18:06 UTC [22708] PANIC:  could not write to file "pg_wal/xlogtemp.1": No space left on device\n'
    )
    log.write_text(panic + LINE.format("6: Aborted"))
    assert list(judge_crashes([log])) == []
    log.write_text(panic.replace("22708", "22709") + LINE.format("6: Aborted"))
    assert [violation.check for violation in judge_crashes([log])] == ["no crash"]
