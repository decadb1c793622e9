"""The line that `berth events tail` prints for an event."""

from __future__ import annotations

from berth.cli.commands.event_lines import line

SUBJECT = "allocations/0198c1f4-11aa-7d3e-8a4b-5b1c9f0e2d77"


def event(type_: str, time: str, **data: object) -> dict[str, object]:
    """The part of a CloudEvents document that is shown."""
    return {"type": f"berth.{type_}", "time": time, "subject": SUBJECT, "data": data}


def test_columns_are_aligned() -> None:
    lines = [
        line(7, event("provisioning.active", "2026-03-01T09:30:00.12+00:00", gpus=2)),
        line(12_345, event("provisioning.releasing.completed", "2026-03-01T09:30:00.123456+00:00", gpus=2)),
    ]
    assert len({shown.index(SUBJECT) for shown in lines}) == 1
    assert all(shown.endswith(f"{SUBJECT}  gpus=2") for shown in lines)


def test_the_type_is_shown_as_the_type_option_takes_it() -> None:
    assert "  provisioning.active  " in line(1, event("provisioning.active", "2026-03-01T09:30:00+00:00"))


def test_text_of_a_tenant_cannot_start_another_line() -> None:
    shown = line(1, event("provisioning.failed", "2026-03-01T09:30:00+00:00", detail="first\nsecond \x1b[2J"))
    assert shown.isprintable()
    assert '"first\\nsecond \\u001b[2J"' in shown


def test_a_message_that_berth_did_not_publish_is_shown() -> None:
    assert line(3, {"time": "noon"}).split() == ["3", "noon", "-", "-"]
