"""Mutants of the first boots of guests."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_AGENT = "tests/libvirt_driver/first_boots/test_first_boot.py"
_CONTROL = "tests/health/test_first_boots.py"
_VERBS = "tests/guests/test_first_boots.py"
_DRIVER = "node_agent/drivers/libvirt"
_STORE = "orchestrator/allocations/store"

MUTANTS: list[Mutant] = [
    Mutant(
        "libvirt: the message of another disk ends a first boot",
        "agent",
        f"{_DRIVER}/channel.py",
        'if found is None or found["nonce"] != nonce:',
        "if found is None:",
        (
            f"{_AGENT}::test_no_other_line_is_the_message",
            f"{_AGENT}::test_the_message_of_another_seed_is_not_this_disks",
        ),
    ),
    Mutant(
        "libvirt: cloud-init that failed is done",
        "agent",
        f"{_DRIVER}/channel.py",
        'if code == "1" or "status: error" in said:',
        "if False:",
        (f"{_AGENT}::test_the_message_says_how_it_ended",),
    ),
    Mutant(
        "libvirt: the second message is read on another connection",
        "agent",
        f"{_DRIVER}/first_boot.py",
        "        await self.listen(directory, channel)\n",
        "        channel.close()\n        await self.listen(directory)\n",
        (f"{_AGENT}::test_a_message_right_behind_the_ready_one_is_not_lost",),
    ),
    Mutant(
        "libvirt: a first boot ends again",
        "agent",
        f"{_DRIVER}/first_boot.py",
        "return found is None or found.status is FirstBootStatus.PENDING",
        "return True",
        (f"{_AGENT}::test_it_ends_once_whatever_the_guest_says_afterwards",),
    ),
    Mutant(
        "libvirt: a first boot is recorded for a guest that is removed",
        "agent",
        f"{_DRIVER}/first_boot.py",
        'record is None or record.state == "releasing" or not',
        "record is None or not",
        (f"{_AGENT}::test_a_message_for_a_guest_that_is_removed_changes_nothing",),
    ),
    Mutant(
        "libvirt: a guest that says too much is read on",
        "agent",
        f"{_DRIVER}/first_boot.py",
        "        except ValueError as error:\n",
        "        except ZeroDivisionError as error:\n",
        (f"{_AGENT}::test_a_guest_that_says_too_much_is_not_read_on",),
    ),
    Mutant(
        "libvirt: a guest's lines keep the agent from other work",
        "agent",
        f"{_DRIVER}/channel.py",
        "            await asyncio.sleep(0)\n",
        "            pass\n",
        (f"{_AGENT}::test_lines_that_are_there_at_once_do_not_keep_the_agent_from_other_work",),
    ),
    Mutant(
        "libvirt: the record is read for each line of a guest",
        "agent",
        f"{_DRIVER}/first_boot.py",
        "        if not line.startswith(MESSAGE_PREFIX):\n            continue\n",
        "        directory.load()\n        if not line.startswith(MESSAGE_PREFIX):\n            continue\n",
        (f"{_AGENT}::test_the_record_is_read_for_a_message_alone",),
    ),
    Mutant(
        "libvirt: messages of no disk are read without end",
        "agent",
        f"{_DRIVER}/first_boot.py",
        "        if messages > MESSAGES_MAX:\n",
        "        if False:\n",
        (f"{_AGENT}::test_messages_of_no_disk_are_read_so_often_and_no_more",),
    ),
    Mutant(
        "libvirt: a channel that cannot be opened is given up",
        "agent",
        f"{_DRIVER}/first_boot.py",
        "return not await in_thread(partial(self._processes_of, directory.path))",
        "return True",
        (f"{_AGENT}::test_a_channel_that_cannot_be_opened_is_tried_again_while_the_guest_runs",),
    ),
    Mutant(
        "first boot: what has ended ends again",
        "allocations",
        "orchestrator/allocations/first_boot.py",
        "return None if reported is now or now not in (None, FirstBootStatus.PENDING) else reported",
        "return None if reported is now else reported",
        (f"{_CONTROL}::test_what_has_ended_never_changes_and_what_is_open_only_once",),
    ),
    Mutant(
        "first boot: what has not ended is announced",
        "allocations",
        "orchestrator/allocations/first_boot.py",
        "return status in ENDED",
        "return True",
        (
            f"{_CONTROL}::test_it_is_unknown_then_pending_then_ended_with_one_event_and_one_line_of_the_timeline",
            f"{_CONTROL}::test_what_does_not_end_is_shown_and_not_announced",
        ),
    ),
    Mutant(
        "first boot: a rebuild keeps it",
        "allocations",
        f"{_STORE}/verbs.py",
        "    first_boot = case when :may_have_new_disk then null else first_boot end,\n",
        "    first_boot = first_boot,\n",
        (f"{_VERBS}::test_a_rebuild_resets_it_and_no_other_verb_does",),
    ),
    Mutant(
        "first boot: a rebuild that was refused resets it",
        "allocations",
        f"{_STORE}/verbs.py",
        "subject.guest_verb == Verb.REBUILD and ended.code not in CHANGES_NOTHING",
        "subject.guest_verb == Verb.REBUILD",
        (f"{_VERBS}::test_a_rebuild_that_was_refused_resets_nothing",),
    ),
    Mutant(
        "first boot: a rebuild that failed keeps it",
        "allocations",
        f"{_STORE}/verbs.py",
        "ended.code not in CHANGES_NOTHING",
        "ended.code is None",
        (f"{_VERBS}::test_a_rebuild_that_failed_or_expired_may_have_made_the_disk_whose_first_boot_counts",),
    ),
    Mutant(
        "first boot: a release keeps what the guest said",
        "allocations",
        f"{_STORE}/advance.py",
        "        first_boot = null,\n        first_boot_detail = null,\n        first_boot_since = null,\n",
        "",
        (f"{_CONTROL}::test_a_report_from_before_it_was_active_of_another_node_or_after_its_release_changes_nothing",),
    ),
]
