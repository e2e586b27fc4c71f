"""The preferences that a window sends: how its client should be served."""

import os
from collections.abc import Mapping
from typing import Any

from portico.core.documents.names import is_valid_name
from portico.edge.windows.control import ControlRequest

FOLDER, TASK_TOKEN, CLIENT, SERVER = "folder", "task_token", "client", "server"
"""Preferences: the folder that a window was started in; the token of a task, for its agent; the
name of the client; the only server for it."""

Preferences = Mapping[str, Any]
"""How a client should be served, such as `{"expose": "search"}`."""


def preferences_of(request: ControlRequest) -> Preferences:
    """Return the preferences in a request to attach."""
    preferences = request.get("preferences")
    return preferences if isinstance(preferences, dict) else {}


def folder_in(preferences: Preferences) -> str:
    """Return the absolute folder in the preferences; empty if there is none."""
    folder = preferences.get(FOLDER)
    is_path = isinstance(folder, str) and os.path.isabs(folder) and "\0" not in folder
    return str(folder) if is_path else ""


def name_in(preferences: Preferences, key: str) -> str:
    """Return a name in the preferences; empty if there is none."""
    name = preferences.get(key)
    return name if isinstance(name, str) and is_valid_name(name) else ""
