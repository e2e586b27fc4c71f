"""Holds the messages of both sides against the JSON Schemas of ACP v1."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.support.node import acp_schema

Message = dict[str, Any]
CLIENT, AGENT = "client", "agent"


def problems_in(log: Path) -> list[str]:
    """Return what is wrong with the messages that the scripted agent logged."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return problems((entry["from"], entry["message"]) for entry in entries)


def problems(messages: Iterable[tuple[str, Message]]) -> list[str]:
    """Return what is wrong with these messages, each with its sender."""
    found: list[str] = []
    asked: dict[tuple[str, str], str] = {}
    for sender, message in messages:
        found += _errors(message, "")
        id = json.dumps(message.get("id"))
        if "method" in message:
            method = message["method"]
            if "id" in message:
                asked[sender, id] = method
            kind = _definition(method, _receiver(sender), ("Request", "Notification"))
            found += _errors(message.get("params"), kind)
        elif "error" in message:
            found += _errors(message["error"], "Error")
        else:
            method = asked.pop((_receiver(sender), id), "")
            kind = _definition(method, sender, ("Response",))
            found += _errors(message["result"], kind)
    return found


def methods_of(sender: str) -> set[str]:
    """The stable methods that a side sends."""
    return {
        one["x-method"]
        for name, one in _schema()["$defs"].items()
        if one.get("x-side") in (_receiver(sender), "protocol") and not name.endswith("Response")
    }


def update_kinds() -> set[str]:
    """The stable kinds of updates."""
    kinds = _schema()["$defs"]["SessionUpdate"]["oneOf"]
    return {kind["properties"]["sessionUpdate"]["const"] for kind in kinds}


def _receiver(sender: str) -> str:
    return AGENT if sender == CLIENT else CLIENT


def _definition(method: str, side: str, endings: tuple[str, ...]) -> str:
    """Return the name of the definition; `side` is the one that handles the method."""
    for name, one in _schema()["$defs"].items():
        is_handled = one.get("x-method") == method and one["x-side"] in (side, "protocol")
        if is_handled and name.endswith(endings):
            return str(name)
    return "ExtRequest"


def _errors(value: Any, kind: str) -> list[str]:
    """Return the first error of a value against a definition, or against the whole schema."""
    for error in _validator(kind).iter_errors(value):
        return [f"{kind or 'message'}: {error.message[:300]}: {json.dumps(value)[:300]}"]
    return []


@cache
def _validator(kind: str) -> Any:
    schema = _schema()
    if not kind:
        return jsonschema_rs.validator_for(schema)
    return jsonschema_rs.validator_for(
        {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{kind}"}
    )


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(acp_schema("v1/schema.json").read_text())
    return schema
