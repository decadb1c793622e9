"""Mutants of upgrades of agents in waves."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WAVES = "berth/cli/rollout/waves.py"
COMMANDS = "berth/cli/rollout/commands.py"
TESTS = "tests/cli/test_upgrade_command.py"
PURE = (f"{TESTS}::test_what_keeps_a_node_from_its_upgrade_and_from_passing",)
WORSE = (f"{TESTS}::test_a_wave_that_is_worse_halts_and_is_rolled_back",)
REACH = (f"{TESTS}::test_nodes_out_of_reach_are_left_out_and_bad_input_is_refused",)
ORDER = (f"{TESTS}::test_waves_follow_one_another_and_a_second_run_has_nothing_to_do",)
ROLL_BACK, HALT = "                self._roll_back(nodes)\n", "                break\n"
FAILS = (f"{TESTS}::test_a_node_that_does_not_come_back_or_whose_command_fails_halts",)


def _mutant(name: str, path: str, old: str, new: str, tests: tuple[str, ...]) -> Mutant:
    return Mutant(f"waves: {name}", "nodes", path, old, new, tests)


MUTANTS: list[Mutant] = [
    _mutant(
        "a degraded allocation passes", WAVES, "now.unhealthy_allocations - before.unhealthy_allocations", "set()", PURE
    ),
    _mutant(
        "a slot that was lost passes", WAVES, "now.slots_out_of_service - before.slots_out_of_service", "set()", WORSE
    ),
    _mutant("another version passes", WAVES, "    if node.agent_version != version:", "    if False:", FAILS),
    _mutant("a command that failed passes", COMMANDS, "        if process.returncode == 0:", "        if True:", FAILS),
    _mutant("a failed wave is followed by the next", COMMANDS, ROLL_BACK + HALT, ROLL_BACK, WORSE),
    _mutant("a failed wave is not rolled back", COMMANDS, ROLL_BACK + HALT, HALT, WORSE),
    _mutant(
        "an offline node is upgraded", WAVES, 'return None if node.online else "it is offline"', "return None", REACH
    ),
    _mutant("a wave is longer than asked", WAVES, "sizes.append(min(size, left))", "sizes.append(left)", ORDER),
]
