"""`subscriptions/listen`: what a modern client wants to hear of, and the messages it gets."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

from portico.model.message import Request
from portico.model.types import Change
from portico.protocol.codec import encode, notification
from portico.protocol.eras import members

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
LIST_KINDS = ("tools", "prompts", "resources")


class _Filter(Struct):
    toolsListChanged: bool = False  # noqa: N815  (fields of the wire)
    promptsListChanged: bool = False  # noqa: N815
    resourcesListChanged: bool = False  # noqa: N815
    resourceSubscriptions: list[str] = []  # noqa: N815


class _ListenParams(Struct):
    notifications: _Filter


class ListenFilter(Struct, frozen=True):
    """The changes one listener wants, known by its request's id."""

    id: bytes
    lists: frozenset[str]
    uris: frozenset[str] = frozenset()

    def only(self, uris: Sequence[str]) -> "ListenFilter":
        """The same with just these resources."""
        return ListenFilter(self.id, self.lists, frozenset(uris))

    def covers(self, change: Change) -> bool:
        """True if this change is one of those asked for."""
        return change.uri in self.uris if change.uri else change.kind in self.lists


def listen_filter(request: Request, kinds: frozenset[str]) -> ListenFilter:
    """What a listen request asks for, less what this server has not got."""
    asked = request.decode_as(_ListenParams).notifications
    lists = {kind for kind in LIST_KINDS if getattr(asked, f"{kind}ListChanged")}
    uris = asked.resourceSubscriptions if "resources" in kinds else []
    return ListenFilter(request.id, frozenset(lists & kinds), frozenset(uris))


def acknowledgement(wanted: ListenFilter) -> bytes:
    """The first message of the stream: the subset that will be honoured."""
    accepted: dict[str, Any] = {
        f"{kind}ListChanged": True for kind in LIST_KINDS if kind in wanted.lists
    }
    if wanted.uris:
        accepted["resourceSubscriptions"] = sorted(wanted.uris)
    return _message(
        "notifications/subscriptions/acknowledged", {"notifications": accepted}, wanted.id
    )


def change_message(change: Change, subscription: bytes = b"") -> bytes:
    """A change as its notification; a modern one names the subscription it belongs to."""
    if change.uri:
        params: dict[str, Any] = {"uri": change.uri}
        if change.params:
            params = dict(members(change.params))
            # The subscription it came by is between us and the upstream.
            meta = members(params.pop("_meta", b""))
            meta.pop(SUBSCRIPTION_KEY, None)
            if meta or subscription:
                params["_meta"] = meta
        return _message("notifications/resources/updated", params, subscription)
    return _message(f"notifications/{change.kind}/list_changed", {}, subscription)


def subscription_end(subscription: bytes) -> bytes:
    """The result that ends a subscription gracefully."""
    return encode({"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: Raw(subscription)}})


def _message(method: str, params: dict[str, Any], subscription: bytes) -> bytes:
    if subscription:
        meta = {**params.pop("_meta", {}), SUBSCRIPTION_KEY: Raw(subscription)}
        params = {"_meta": meta, **params}
    return notification(method, params or None)
