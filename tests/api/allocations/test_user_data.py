"""User data that claims to be a cloud-config is one, or is refused before anything is placed."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from orchestrator.http.fields import USER_DATA_LENGTH_MAX, UserData
from orchestrator.http.types.cloud_config import DEPTH_MAX, EVENTS_MAX
from tests.api.calling import Caller, Place, new_tenant, rent

ACCEPTED = TypeAdapter(UserData)
SECRET = "pw-7f3a"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#!/bin/sh\n{{{ not yaml",
        "Content-Type: multipart/mixed; boundary=x\n\n--x--\n",
        "#cloud-config",
        "#cloud-config\n# comments alone\n",
        "#cloud-config\n{}\n",
        "#cloud-config\npackages: [git]\nruncmd:\n- [sh, -c, 'echo \"a\"']\n",
        "#cloud-config\na: &a {b: c}\nd: *a\n",
    ],
)
def test_what_cloud_init_takes_is_accepted(text: str) -> None:
    assert ACCEPTED.validate_python(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"#cloud-config\npassword: {SECRET}\npackages: [a\nb: c\n", "no YAML: .* in line 4"),
        ("#cloud-config\n\tpackages: []\n", "no YAML: .* in line 2"),
        ("#cloud-config\na: \x07\n", "no YAML: control characters are not allowed"),
        ("#cloud-config\n- a\n- b\n", "no YAML mapping"),
        ("#cloud-config\njust words\n", "no YAML mapping"),
        ("#cloud-config\na: b\n---\nc: d\n", "one YAML document"),
        ("#cloud-config\na: " + "[" * (DEPTH_MAX + 1), "nested"),
        ("#cloud-config\na: " + "[" * (USER_DATA_LENGTH_MAX - 100), "nested"),
        ("#cloud-config\n" + "? " * 30_000, "nested"),
        ("#cloud-config\na: [" + "{}," * (EVENTS_MAX // 2 + 1) + "]", "parts at most"),
    ],
    ids=["open list", "tab", "control", "list", "words", "two documents", "deep", "deeper", "keys of keys", "long"],
)
def test_what_cloud_init_would_ignore_is_refused_with_the_place_and_nothing_of_the_text(text: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why) as refused:
        ACCEPTED.validate_python(text)
    assert SECRET not in refused.value.errors()[0]["msg"]


def test_an_alias_is_never_unfolded() -> None:
    lines = ["#cloud-config", "a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    bomb = "\n".join(lines)
    assert ACCEPTED.validate_python(bomb) == bomb, (
        "nine to the thirtieth is cloud-init's to refuse; here it costs nothing"
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5))
def test_every_mapping_that_yaml_writes_is_accepted(config: dict[str, object]) -> None:
    text = "#cloud-config\n" + yaml.safe_dump(config)
    assert ACCEPTED.validate_python(text) == text


def kinds_of_refusal(text: str) -> list[str]:
    """Why the text is refused; nothing if it is accepted."""
    try:
        ACCEPTED.validate_python(text)
    except ValidationError as refused:
        return [error["type"] for error in refused.errors()]
    return []


@given(st.text(max_size=200))
def test_any_text_is_a_mapping_or_refused_with_a_sentence(rest: str) -> None:
    text = "#cloud-config" + rest.replace("\0", "")
    refused = kinds_of_refusal(text)
    assert refused == ["user_data"] or isinstance(yaml.safe_load(text), dict | None)


def test_a_create_with_a_broken_cloud_config_places_nothing(admin: Caller, place: Place) -> None:
    tenant = new_tenant(admin)
    rent(tenant, place, user_data="#cloud-config\npackages: [git]\n")
    key = tenant.get("/ssh-keys")["items"][0]["id"]
    body = {
        "sku": place.sku,
        "gpus": 1,
        "region": place.region,
        "ssh_key_ids": [key],
        "user_data": "#cloud-config\na: [\n",
    }
    refused = tenant.call("POST", "/allocations", body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert "user_data" in refused.text
    assert "no YAML" in refused.text
    assert len(tenant.get("/allocations")["items"]) == 1
