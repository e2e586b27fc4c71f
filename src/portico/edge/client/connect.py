"""Connects a client to a server, for commands and tests."""

from collections.abc import Callable, Mapping
from typing import Any

from portico.edge.client.client import Client, Log
from portico.edge.client.client_answers import NO_ANSWERS, ClientAnswers
from portico.upstream.connections.handshake import ClientHello, HandshakeLimits, open_exchange
from portico.upstream.wires.wire import Address

ANONYMOUS = {"name": "portico", "version": "0"}
"""The client info that is sent by default."""


async def connect(
    address: Address,
    *,
    era: str = "auto",
    answers: ClientAnswers = NO_ANSWERS,
    limits: HandshakeLimits | None = None,
    log: Log | None = None,
    on_notification: Callable[[str, bytes], None] | None = None,
    info: Mapping[str, Any] = ANONYMOUS,
) -> Client:
    """Connect to a server; raises TargetError if that fails. `on_notification` takes the method and
    the params of each notification."""
    client: Client | None = None

    def notified(method: str, params: bytes, about: bytes) -> None:
        if client is not None:
            client.on_notification(method, params)
        if on_notification is not None:
            on_notification(method, params)

    limits = limits or HandshakeLimits()
    hello = ClientHello(info, answers.capabilities, answers.serve, notified, limits, era)
    exchange, server = await open_exchange(address, hello)
    client = Client(exchange, server, info=info, answers=answers, limits=limits, log=log)
    return client
