"""Mutants of the local cluster and of what leaves a deposed primary."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DEPOSED = "tests/database/test_deposed_primaries.py"
_FIRST = f"{_DEPOSED}::test_a_deposed_primary_serves_nothing_although_it_is_listed_first"
_UP = "tests/high_availability/test_up.py"
_LAYOUT = f"{_UP}::test_a_layout_is_not_taken_for_the_other"
_LAST = f"{_UP}::test_the_last_primary_is_found_by_its_timeline"
_FILES = f"{_UP}::test_files_and_rights_of_a_member"
_FENCE = "berth/process/deposed_servers.py"
_CLOCK = "berth/process/server_clocks.py"
_STEPPED = "tests/database/test_stepped_clocks.py"
_AHEAD = f"{_STEPPED}::test_a_server_that_steps_forward_is_refused_until_either_clock_explains_it"
_BEHIND = f"{_STEPPED}::test_a_new_primary_that_is_behind_is_refused_until_it_has_passed_the_earlier_one"
_LONG = f"{_STEPPED}::test_a_reading_that_took_long_replaces_no_precise_one_of_the_same_server"
_NEVER_BACK = f"{_STEPPED}::test_whatever_the_clocks_of_the_primaries_time_never_goes_back"
_POSTMASTERS = "berth/local/high_availability/postmasters.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "a connection pooler is taken for the server",
        "database",
        "berth/process/poolers.py",
        "    if info.backend_pid != session_pid:\n",
        "    if session_pid < 0:\n",
        ("tests/database/test_poolers.py::test_a_connection_to_a_pooler_is_refused",),
    ),
    Mutant(
        "a deposed primary is used",
        "database",
        _FENCE,
        "    if timeline == newest:\n",
        "    if timeline <= newest:\n",
        (_FIRST,),
    ),
    Mutant(
        "a newer timeline is not remembered",
        "database",
        _FENCE,
        "    _newest[system] = newest\n",
        "    _newest.setdefault(system, newest)\n",
        (_FIRST,),
    ),
    Mutant(
        "a deposed primary that is listed first hides the next server",
        "database",
        _FENCE,
        "place != (host, str(port)) and place",
        "place == (host, str(port)) and place",
        (_FIRST, f"{_DEPOSED}::test_the_next_server_of_an_address"),
    ),
    Mutant(
        "a directory with one server is taken for a cluster",
        "database",
        "berth/local/high_availability/layout.py",
        "    if ha and (state.path / SERVER_DIRECTORY).exists():\n",
        "    if ha and (state.path / CLUSTER_DIRECTORY / SERVER_DIRECTORY).exists():\n",
        (_LAYOUT,),
    ),
    Mutant(
        "a directory with a cluster is taken for one server",
        "database",
        "berth/local/high_availability/layout.py",
        "    if not ha and not outside and (",
        "    if ha and not outside and (",
        (_LAYOUT,),
    ),
    Mutant(
        "a deposed server is started as the primary",
        "database",
        _POSTMASTERS,
        "if control.was_primary and control.timeline == newest]",
        "if control.was_primary]",
        (_LAST,),
    ),
    Mutant(
        "a promotion is known by the control file alone",
        "database",
        _POSTMASTERS,
        'timelines = [int(path.stem, 16) for path in (data / "pg_wal").glob("*.history")]',
        "timelines: list[int] = []",
        (_LAST,),
    ),
    Mutant(
        "commits are acknowledged by one server while no standby is there",
        "database",
        "berth/local/high_availability/configuration.py",
        '        "synchronous_mode_strict": True,\n',
        "",
        (_FILES,),
    ),
    Mutant(
        "the clock of a new primary is not compared",
        "database",
        _FENCE,
        "        await require_right_clock(connection, system, timeline, reading)\n",
        "",
        (f"{_STEPPED}::test_a_new_primary_whose_clock_is_ahead_evaluates_no_deadline",),
    ),
    Mutant(
        "a primary's clock that stepped forward is used",
        "database",
        _CLOCK,
        "    if found.ahead or found.behind > STEP_SECONDS_MAX:\n",
        "    if found.behind > STEP_SECONDS_MAX:\n",
        (f"{_STEPPED}::test_a_new_primary_whose_clock_is_ahead_evaluates_no_deadline",),
    ),
    Mutant(
        "a connection does not wait until the clock has passed the earlier primary's",
        "database",
        _CLOCK,
        "    if found.behind:\n",
        "    if False:\n",
        (f"{_STEPPED}::test_nothing_is_dated_before_what_the_earlier_primary_dated",),
    ),
    Mutant(
        "a step of this process's own wall clock refuses its database",
        "database",
        _CLOCK,
        "    if stepped > STEP_SECONDS_MAX and reading",
        "    if reading",
        (_AHEAD,),
    ),
    Mutant(
        "a server whose clock was repaired stays refused",
        "database",
        _CLOCK,
        " and reading.ahead_at_least() - wall_ahead > STEP_SECONDS_MAX:\n",
        ":\n",
        (_AHEAD,),
    ),
    Mutant(
        "what a new primary must pass moves on with each attempt",
        "database",
        _CLOCK,
        "before and replace(before, timeline=timeline, passed=passed)",
        "before",
        (_BEHIND,),
    ),
    Mutant(
        "a vague reading of the earlier primary stays when there is a new one",
        "database",
        _CLOCK,
        "    same = before is not None and timeline == before.read_on\n",
        "    same = before is not None\n",
        (_LONG,),
    ),
    Mutant(
        "a new primary need not pass the clock of the earlier one",
        "database",
        _CLOCK,
        "        passed = reading.asked + expected.ahead_at_most()\n",
        "        passed = 0.0\n",
        (_BEHIND, _NEVER_BACK),
    ),
]
