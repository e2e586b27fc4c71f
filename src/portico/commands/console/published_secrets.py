"""Secrets of a published server that the keyring gets, once the server is added."""

import argparse
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from portico.commands.console.dialog import Dialog
from portico.commands.console.secret_values import (
    KEYRING,
    NO_KEYRING,
    VARIABLE,
    Store,
    keyring_store,
    with_answers,
)
from portico.commands.published.settings import PublishedError, Setting, Values
from portico.commands.published.source import PublishedServer
from portico.core.config.expand import is_reference


class KeyringSecrets(Struct, frozen=True):
    """The secrets of one server by their settings; none if all stay variables."""

    server: str
    values: dict[str, tuple[str, ...]] = {}

    def entry(self, planned: PublishedServer, given: Values) -> dict[str, Any]:
        """Return the entry of the server, with marks in place of these secrets."""
        entry = planned.entry({**given, **self._marks()})
        # A URL cannot refer to the keyring.
        url = entry.get("url", "")
        kept = {
            key: self.values[key] for key, marks in self._marks().items() if marks[0] not in url
        }
        if len(kept) == len(self.values):
            return entry
        return KeyringSecrets(self.server, kept).entry(planned, given)

    def stored(self, entry: dict[str, Any], store: Store) -> dict[str, Any]:
        """Store the secrets of an entry with the text around them; return it with references."""
        answers = {
            _id(key, number): value
            for key, values in self.values.items()
            for number, value in enumerate(values)
        }
        return with_answers(self.server, entry, answers, store)

    def shown(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the same without storing anything."""
        return self.stored(entry, lambda *_: None)

    def _marks(self) -> dict[str, tuple[str, ...]]:
        return {
            key: tuple(f"${{input:{_id(key, number)}}}" for number, _ in enumerate(values))
            for key, values in self.values.items()
        }


def _id(key: str, number: int) -> str:
    """The id of a value: a publisher may have chosen any text for the key."""
    return f"{key.encode().hex()}-{number}"


def keyring_secrets(
    options: argparse.Namespace, settings: Sequence[Setting], dialog: Dialog
) -> KeyringSecrets:
    """Return the secrets that the person gives to the keyring; raises PublishedError."""
    given: dict[str, list[str]] = {}
    for key, value in options.set:
        given.setdefault(key, []).append(value)
    open_ones = [
        one
        for one in settings
        if one.is_secret and not any(map(is_reference, given.get(one.key, ())))
    ]
    server = options.name
    if not open_ones or _place(options, open_ones, dialog) != KEYRING:
        return KeyringSecrets(server)
    found = {one.key: _value(server, one, given.get(one.key, []), dialog) for one in open_ones}
    return KeyringSecrets(server, {key: values for key, values in found.items() if values})


def _place(options: argparse.Namespace, secrets: Sequence[Setting], dialog: Dialog) -> str:
    """Return the place of the secrets: by the flag, or by an answer; else variables."""
    has_keyring = keyring_store() is not None
    if options.secrets == KEYRING and not has_keyring:
        raise PublishedError(NO_KEYRING)
    if options.secrets or not has_keyring or not dialog.can_ask:
        return options.secrets or VARIABLE
    keys = ", ".join(one.key for one in secrets)
    question = f"{options.name}: {keys} is secret. Keep it in: [k]eyring, [v]ariable: "
    return {"k": KEYRING, "v": VARIABLE}[dialog.choose(question, "kv")]


def _value(server: str, one: Setting, given: list[str], dialog: Dialog) -> tuple[str, ...]:
    """Return the values of a secret: given, or typed without an echo."""
    if given:
        return one.given(given)
    if dialog.can_ask:
        typed = dialog.value(f"{server}: {one.key} (Enter to use a variable): ")
        return (typed,) if typed else ()
    if one.is_required:
        raise PublishedError(
            f"{one.key} needs a value for the keyring; add --set {one.key}=VALUE, "
            "or use --secrets env"
        )
    return ()
