"""The keys that leave a console are read from the BMC's text, and never reach the BMC whole."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from node_agent.bmc_consoles.hot_keys import HotKeyFilter, Keys, read_hot_keys

ENTER = frozenset(b"\r\n")


def keys(*pressed: bytes) -> Keys:
    return tuple(frozenset(one) for one in pressed)


@pytest.mark.parametrize(
    ("display", "wanted"),
    [
        ("~.", keys(b"~", b".")),
        ("Press ~. to exit console", keys(b"~", b".")),
        ("press <Enter>, <Esc>, and then <T> to terminate session", (ENTER, *keys(b"\x1b", b"tT"))),
        ("^\\", keys(b"\x1c")),
        ("Ctrl-]", keys(b"\x1d")),
        ("^] to quit", keys(b"\x1d")),
        ("Press Ctrl+\\ to exit", keys(b"\x1c")),
        ("Press the hot key ctrl - x to leave the session.", keys(b"\x18")),
        ("Press 'ESC (' to return to the CLI Session.", keys(b"\x1b", b"(")),
    ],
)
def test_a_text_that_is_understood_names_the_keys(display: str, wanted: Keys) -> None:
    assert read_hot_keys(display) == wanted


@pytest.mark.parametrize(
    "display",
    [
        "", "Ctrl-Alt-F", "~. or ^]", "Enter ~ .", "x", "~", "F10", "Press F10", "voir le manuel", "~" * 9, "é", "to exit",
        # More than one sequence, or one that does something else.
        "Press Ctrl-] to quit or Ctrl-\\ for the CLI", "Press ~. to exit console, ~^Z to suspend",
        "Press ~? for help, ~. to exit", "^\\ and ^]", "Press ~. to exit console. Press ~^Z to suspend", "^\\ ^]", "^]^\\",
        "Press ~. to exit the console or ~B to break", "Press ~. to suspend",
        # A point that may end the sentence.
        "Press Ctrl-].", "Press ^\\.", "^\\.", "Press ~.", "Press ~ to exit.", "^Ec.",
        # Brackets and words that may be part of the keys.
        "Press <^]> to exit", "Press (^]) to exit", "Press <~.> to exit", "Press [~.] to exit", "Press '~.' to exit",
        "Press ~ then : then . to exit", "Press <Enter>~. to exit", "Press 'ESC ( to return", "Press <Enter> to exit",
        "the key sequence is: tilde dot", "Press ~. twice to exit", "Press ~.. to exit", "Press ~~. to exit",
        # Keys without which a tenant cannot type.
        "Press Ctrl-M to exit", "^J",
        # Look-alikes.
        "Pre\u017f\u017f ~. to exit", "Ctrl-\u212a", "Ctrl-Shift-] to exit", "Press ~. to exit\n~B",
        "~.\u00a0to exit", "~.\u2028^]",
    ],
)  # fmt: skip
def test_a_text_that_is_not_understood_is_not_guessed(display: str) -> None:
    assert read_hot_keys(display) is None


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(display: str) -> None:
    found = read_hot_keys(display)
    assert found is None or 1 <= len(found) <= 8


SEQUENCES = [keys(b"~", b"."), (ENTER, *keys(b"\x1b", b"tT")), keys(b"\x1c"), keys(b"~", b"~", b".")]


@example(SEQUENCES[0], [list(b"~"), list(b".")])
@given(st.sampled_from(SEQUENCES), st.lists(st.lists(st.sampled_from(b"~.\r\n\x1btTx\x1c"), max_size=6), max_size=30))
def test_what_passes_never_contains_the_sequence(sequence: Keys, typed: list[list[int]]) -> None:
    filtered = HotKeyFilter(sequence)
    passed = b"\r" + b"".join(filtered.passed(bytes(piece)) for piece in typed)
    length = len(sequence)
    windows = [passed[begin : begin + length] for begin in range(len(passed) - length + 1)]
    assert not [one for one in windows if all(byte in key for byte, key in zip(one, sequence, strict=True))]
    assert len(passed) - 1 + filtered.dropped == sum(map(len, typed))


@given(st.lists(st.binary(max_size=5), max_size=20))
def test_nothing_is_kept_back_without_a_sequence(typed: list[bytes]) -> None:
    filtered = HotKeyFilter(())
    assert b"".join(map(filtered.passed, typed)) == b"".join(typed)


def test_what_is_no_hot_key_passes_at_once() -> None:
    filtered = HotKeyFilter(SEQUENCES[0])
    assert [filtered.passed(one) for one in (b"cat ~", b"/x", b"~", b".", b".", b"a.")] == [
        b"cat ~", b"/x", b"~", b"", b"", b"a."
    ]  # fmt: skip
    assert filtered.dropped == 2


def test_the_begin_of_a_session_counts_as_the_begin_of_a_line() -> None:
    assert HotKeyFilter(SEQUENCES[1]).passed(b"\x1bTx") == b"\x1bx"
