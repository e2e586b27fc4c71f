"""`subscriptions/listen`: the filter of a modern client, and the messages of its stream."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from portico.core.model.message import Request
from portico.core.model.types import Change
from portico.core.protocol.codec import encode, notification
from portico.core.protocol.eras import members

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
LIST_KINDS = ("tools", "prompts", "resources")


class _Filter(Struct):
    toolsListChanged: bool = False  # noqa: N815  (fields of the wire)
    promptsListChanged: bool = False  # noqa: N815
    resourcesListChanged: bool = False  # noqa: N815
    resourceSubscriptions: list[str] = []  # noqa: N815
    taskIds: list[str] = []  # noqa: N815  (of the extension for tasks)


class _ListenParams(Struct):
    notifications: _Filter


class ListenFilter(Struct, frozen=True):
    """The changes that one listener subscribed to, and its request's id."""

    id: bytes
    lists: frozenset[str]
    uris: frozenset[str] = frozenset()
    tasks: tuple[str, ...] = ()

    def only(self, uris: Sequence[str], tasks: Sequence[str] = ()) -> "ListenFilter":
        """Return the filter with only these resources and tasks."""
        return ListenFilter(self.id, self.lists, frozenset(uris), tuple(tasks))

    def covers(self, change: Change) -> bool:
        """True if the listener subscribed to this change."""
        return change.uri in self.uris if change.uri else change.kind in self.lists


def listen_filter(request: Request, kinds: frozenset[str]) -> ListenFilter:
    """Return the filter of a listen request, without the kinds that this server lacks."""
    requested = request.decode_as(_ListenParams).notifications
    lists = {kind for kind in LIST_KINDS if getattr(requested, f"{kind}ListChanged")}
    uris = requested.resourceSubscriptions if "resources" in kinds else []
    tasks = tuple(dict.fromkeys(requested.taskIds))
    return ListenFilter(request.id, frozenset(lists & kinds), frozenset(uris), tasks)


def acknowledgement(filter: ListenFilter) -> bytes:
    """Encode the first message of the stream: the part of the filter that is accepted."""
    accepted: dict[str, Any] = {
        f"{kind}ListChanged": True for kind in LIST_KINDS if kind in filter.lists
    }
    if filter.uris:
        accepted["resourceSubscriptions"] = sorted(filter.uris)
    if filter.tasks:
        accepted["taskIds"] = list(filter.tasks)
    return _message(
        "notifications/subscriptions/acknowledged", {"notifications": accepted}, filter.id
    )


def change_message(change: Change, subscription: bytes = b"") -> bytes:
    """Encode the notification of a change, for modern clients with its subscription."""
    if change.uri:
        params: dict[str, Any] = {"uri": change.uri}
        if change.params:
            params = dict(members(change.params))
            # The subscription in it is ours at the upstream.
            meta = members(params.pop("_meta", b""))
            meta.pop(SUBSCRIPTION_KEY, None)
            if meta or subscription:
                params["_meta"] = meta
        return _message("notifications/resources/updated", params, subscription)
    return _message(f"notifications/{change.kind}/list_changed", {}, subscription)


def task_message(params: bytes, subscription: bytes) -> bytes:
    """Encode the notification of a task's state, under the listener's own subscription."""
    fields: dict[str, Any] = dict(members(params))
    meta = members(fields.pop("_meta", b""))
    return _message("notifications/tasks", {**fields, "_meta": meta}, subscription)


def subscription_of(params: bytes) -> bytes:
    """Return the raw id of the subscription that a notification belongs to; empty if none."""
    meta = members(members(params).get("_meta", b""))
    return bytes(meta.get(SUBSCRIPTION_KEY, b""))


def subscription_end(subscription: bytes) -> bytes:
    """Encode the result that ends a subscription."""
    return encode({"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: Raw(subscription)}})


def _message(method: str, params: dict[str, Any], subscription: bytes) -> bytes:
    if subscription:
        meta = {**params.pop("_meta", {}), SUBSCRIPTION_KEY: Raw(subscription)}
        params = {"_meta": meta, **params}
    return notification(method, params or None)
