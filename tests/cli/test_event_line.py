"""One event as `berth events tail` shows it to a person."""

from __future__ import annotations

from berth.cli.commands.event_lines import line

SUBJECT = "allocations/0198c1f4-11aa-7d3e-8a4b-5b1c9f0e2d77"


def event(type_: str, time: str, **data: object) -> dict[str, object]:
    """The part of a CloudEvents document that is shown."""
    return {"type": f"berth.{type_}", "time": time, "subject": SUBJECT, "data": data}


def test_columns_stand_under_one_another() -> None:
    lines = [
        line(7, event("provisioning.active", "2026-03-01T09:30:00.12+00:00", gpus=2)),
        line(12_345, event("provisioning.releasing.completed", "2026-03-01T09:30:00.123456+00:00", gpus=2)),
    ]
    assert len({shown.index(SUBJECT) for shown in lines}) == 1
    assert all(shown.endswith(f"{SUBJECT}  gpus=2") for shown in lines)


def test_the_type_is_what_can_be_asked_for() -> None:
    assert "  provisioning.active  " in line(1, event("provisioning.active", "2026-03-01T09:30:00+00:00"))


def test_what_a_tenant_wrote_cannot_leave_its_line() -> None:
    shown = line(1, event("provisioning.failed", "2026-03-01T09:30:00+00:00", detail="first\nsecond \x1b[2J"))
    assert shown.isprintable()
    assert '"first\\nsecond \\u001b[2J"' in shown


def test_a_message_of_somebody_else_is_shown_all_the_same() -> None:
    assert line(3, {"time": "noon"}).split() == ["3", "noon", "-", "-"]
