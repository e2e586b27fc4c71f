"""What a body asks for, judged by another parser than Portico's."""

import json
import sys
from typing import Any, NoReturn

sys.set_int_max_str_digits(0)  # an id may be any number; so may an answer's

_UNREADABLE = object()


def read(body: bytes) -> Any:
    """The JSON of a body by the letter, or a mark that it is none."""
    try:
        value = json.loads(body.decode(), parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return _UNREADABLE
    return value


def request_id(message: Any) -> str | None:
    """The id of a message that must be answered exactly once, as JSON; None for any other."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    method, id = message.get("method"), message.get("id")
    if not isinstance(method, str) or not method or isinstance(id, bool):
        return None
    if not isinstance(id, str | int) or "result" in message or "error" in message:
        return None
    return json.dumps(id)


def may_stay_open(message: Any) -> bool:
    """True for a subscription, which is answered when it ends."""
    return isinstance(message, dict) and message.get("method") == "subscriptions/listen"


def cancelled_id(message: Any) -> str | None:
    """The id that a message cancels, whose request may then have no answer."""
    if not isinstance(message, dict) or message.get("method") != "notifications/cancelled":
        return None
    params = message.get("params")
    return json.dumps(params.get("requestId")) if isinstance(params, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
