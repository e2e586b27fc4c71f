"""Secrets and inputs of imported entries: found, and replaced by references."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from portico.commands.console.secret_values import (
    inputs_of,
    keyring_store,
    plain_secrets,
    variable_for,
    with_answers,
    with_variables,
)

ENTRY = {
    "command": "x",
    "args": ["--token", "${input:api token}"],
    "env": {"KEY": "${input:key}", "REGION": "eu", "GITHUB_TOKEN": "${GITHUB_TOKEN}"},
    "headers": {"Authorization": "Bearer ${input:key}", "X-Id": "7"},
    "url": "https://x.example/${input:key}",
}


def test_each_input_is_named_once() -> None:
    assert inputs_of(ENTRY) == ["api token", "key"]


def test_without_a_keyring_inputs_become_variables() -> None:
    found = with_variables(ENTRY)
    assert found["args"] == ["--token", "${API_TOKEN}"]
    assert found["headers"] == {"Authorization": "Bearer ${KEY}", "X-Id": "7"}
    assert (variable_for("1st-key"), variable_for("é")) == ("INPUT_1ST_KEY", "INPUT_")


def test_answers_are_stored_with_the_text_around_them_and_referred_to() -> None:
    stored: dict[str, str] = {}
    found = with_answers("srv", ENTRY, {"key": "k-1"}, stored.__setitem__)
    assert stored == {"srv.KEY": "k-1", "srv.Authorization": "Bearer k-1"}
    assert found["env"]["KEY"] == "keyring:srv.KEY"
    assert found["headers"] == {"Authorization": "keyring:srv.Authorization", "X-Id": "7"}
    # A URL cannot refer to the keyring, and the other input was not answered.
    assert found["url"] == "https://x.example/${KEY}"
    assert found["args"] == ["--token", "${API_TOKEN}"]


def test_only_plain_values_of_secret_names_are_secrets() -> None:
    entry = {
        "env": {"API_KEY": "k", "TOKEN": "${T}", "PASSWORD": "", "LANG": "C", "PAT": "file:~/pat"},
        "headers": {"X-Api-Key": "k", "Authorization": "keyring:x", "Accept": "text/plain"},
    }
    assert plain_secrets(entry) == [(("env", "API_KEY"), "k"), (("headers", "X-Api-Key"), "k")]


@pytest.mark.parametrize("priority", [0, 5])
def test_a_keyring_that_cannot_keep_anything_is_none(
    priority: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("keyring")
    kept: dict[tuple[str, str], str] = {}
    vars(module).update(
        get_keyring=lambda: SimpleNamespace(priority=priority),
        set_password=lambda service, name, value: kept.update({(service, name): value}),
    )
    monkeypatch.setitem(sys.modules, "keyring", module)
    store = keyring_store()
    assert (store is None) == (priority == 0)
    if store is not None:
        store("a", "b")
    assert kept == ({("portico", "a"): "b"} if priority else {})
