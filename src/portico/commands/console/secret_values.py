"""Secrets in entries: found, and replaced by a reference to the keyring or a variable."""

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from portico.core.config.expand import SERVICE, is_reference
from portico.core.documents.problems import Path
from portico.upstream.process.environment import looks_secret

KEEP, VARIABLE, KEYRING = "keep", "env", "keyring"
NO_KEYRING = (
    "there is no keyring: install the keyring package in Portico's environment, "
    "or use --secrets env"
)
_HEADER = re.compile("authorization|token|secret|key|cookie", re.IGNORECASE)
_INPUT = re.compile(r"\$\{input:([^}]*)\}")

Store = Callable[[str, str], None]
"""Keeps a secret under a name."""


def plain_secrets(entry: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """The path and the value of each secret that is plain text in an entry."""
    found: list[tuple[Path, str]] = []
    for key, is_secret in (("env", looks_secret), ("headers", _HEADER.search)):
        for name, value in entry.get(key, {}).items():
            if value and is_secret(name) and not is_reference(value):
                found.append(((key, name), value))
    return found


def inputs_of(entry: Mapping[str, Any]) -> list[str]:
    """The ids of the inputs that an editor would ask for, each once."""
    texts = (text for _, text in _texts(entry))
    return list(dict.fromkeys(id for text in texts for id in _INPUT.findall(text)))


def variable_for(text: str) -> str:
    """The name of an environment variable for an input or a header."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()
    return name if name[:1].isalpha() else f"INPUT_{name}"


def with_variables(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with `${NAME}` in place of each `${input:name}`."""

    def change(text: str) -> str:
        return _INPUT.sub(lambda match: f"${{{variable_for(match[1])}}}", text)

    return {key: mapped(value, change) for key, value in entry.items()}


def with_answers(
    server: str, entry: Mapping[str, Any], answers: Mapping[str, str], store: Store
) -> dict[str, Any]:
    """The entry with each value that needs an answer stored, and a reference to it."""
    made = dict(entry)
    for at, text in _texts(entry):
        if at[0] != "url" and any(id in answers for id in _INPUT.findall(text)):
            value = _INPUT.sub(lambda match: answers.get(match[1], match[0]), text)
            made = _replaced(made, at, _stored(server, at, value, store))
    return with_variables(made)


def with_references(
    server: str, entry: Mapping[str, Any], how: str, store: Store | None
) -> tuple[dict[str, Any], list[str]]:
    """The entry without plain secrets, and the names of the variables that must be set."""
    made, names = dict(entry), []
    for at, value in plain_secrets(entry):
        if how == KEYRING and store is not None:
            made = _replaced(made, at, _stored(server, at, value, store))
        elif how == VARIABLE:
            key = str(at[1])
            name = key if at[0] == "env" else variable_for(f"{server}_{key}")
            made = _replaced(made, at, f"${{{name}}}")
            names.append(name)
    return made, names


def keyring_store() -> Store | None:
    """Return a function that keeps a secret in the system's keyring; None without one."""
    try:
        keyring = import_module("keyring")
        if keyring.get_keyring().priority < 1:
            return None
    except Exception:  # noqa: BLE001  (a backend may raise anything)
        return None

    def store(name: str, value: str) -> None:
        keyring.set_password(SERVICE, name, value)

    return store


def _stored(server: str, at: Path, value: str, store: Store) -> str:
    name = f"{server}.{'.'.join(map(str, at[1:]))}"
    store(name, value)
    return f"keyring:{name}"


def _texts(value: Any, at: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(one, (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _texts(one, (*at, number))


def _replaced(value: Any, at: Path, new: str) -> Any:
    if not at:
        return new
    made: Any = list(value) if isinstance(value, list) else dict(value)
    made[at[0]] = _replaced(made[at[0]], at[1:], new)
    return made


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same data with each string changed."""
    if isinstance(value, dict):
        return {key: mapped(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [mapped(one, change) for one in value]
    return change(value) if isinstance(value, str) else value
