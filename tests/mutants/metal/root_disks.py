"""Mutants of the root disk of a machine: the hint of its operator, and what follows it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "orchestrator/nodes/deploy_systems/root_disks.py"
_ORDERS = "orchestrator/sites/run_orders.py"
_TENANCIES = "orchestrator/sites/tenancies.py"
_RUNS = "orchestrator/sites/commands/runs.py"
_TESTS = "tests/sites/roots/test_root_disks.py"
_CHOICE = f"{_TESTS}::test_the_smallest_disk_that_the_hint_allows_is_the_root_disk"
_SAID = f"{_TESTS}::test_a_refusal_names_its_cause_and_the_hint_if_one_is_given"
_OPEN = f"{_TESTS}::test_an_open_run_takes_no_other_hint"
_KEPT = f"{_TESTS}::test_a_hint_is_kept_for_later_runs_and_decides_where_a_tenant_is_deployed"


def _root(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"metal root disks: {what}", "nodes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _root("another serial is allowed", _RULES, "            self.serial in (None, disk.serial)\n", "            True\n", _CHOICE),
    _root("another kind is allowed", _RULES, "and self.kind in (None, kind)", "", _CHOICE),
    _root("a smaller disk is allowed", _RULES, "(disk.size_bytes or 0) >= self.size_bytes_min", "True", _CHOICE),
    _root(
        "an image that no allowed disk holds goes to another", _RULES, "if hint.allows(disk)]",
        "if hint.allows(disk) or (disk.size_bytes or 0) > image_bytes]",
        f"{_TESTS}::test_an_image_that_no_allowed_disk_holds_goes_to_no_other",
    ),
    _root("the hint decides nothing", _TENANCIES, "RootDiskHint.of(medium)", "RootDiskHint()", _KEPT),
    _root("the next run forgets the hint", _ORDERS, "{**medium, **await kept_root_disk(tx, bmc.node_id)}", "medium",
        f"{_TESTS}::test_a_run_without_a_hint_keeps_the_one_before"),
    _root(
        "an empty hint leaves the one before", _ORDERS, "    if order.root_disk is None:",
        "    if not order.root_disk or not order.root_disk.document():",
        f"{_TESTS}::test_an_empty_hint_is_none",
    ),
    _root(
        "an adoption forgets the hint", _TENANCIES, "{**others, **await kept_root_disk(tx, node_id)}",
        "before if adopted is not None else {**others, **await kept_root_disk(tx, node_id)}",
        "tests/sites/adopting/test_verbs.py::test_an_adoption_keeps_the_hint_of_the_machine",
    ),
    _root(
        "the hint of a run that was stopped is shown alone", _TENANCIES, "{**others, **await kept_root_disk(tx, node_id)}",
        "before", _KEPT,
    ),
    _root(
        "a hint outlasts the empty one of a stopped run", _TENANCIES, "{**others, **await", "{**before, **await",
        f"{_TESTS}::test_an_empty_hint_is_none",
    ),
    _root("an open run drops another hint", _RUNS, "            _require_same_root_disk(known, order)\n", "", _OPEN),
    _root(
        "an open run refuses a request without a hint", _RUNS, "if order.root_disk is not None and order", "if order", _OPEN,
    ),
    _root("a refusal names a hint that was not given", _RULES, 'if given else "disk"', 'if True else "disk"', _SAID),
    _root("an allowed disk that is too small hides the hint", _RULES, "no {disk_said} holds", "no disk holds", _SAID),
    _root("a disk without a serial is called too small", _RULES, "    if nameless:", "    if nameless and not found:", _SAID),
    _root(
        "a small disk without a serial is called unnamed", _RULES, "disk.size_bytes is None or disk.size_bytes >= least", "True",
        _SAID,
    ),
    _root(
        "a disk that no hint allows fails by a defect", "orchestrator/nodes/deploy_systems/deploy_orders.py",
        "    except NoRootDisk as error:", "    except ZeroDivisionError as error:",
        f"{_TESTS}::test_a_hint_that_allows_no_disk_fails_the_create_before_anything_is_done",
    ),
]  # fmt: skip
