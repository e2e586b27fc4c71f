"""Connects a client to a server, for commands and tests."""

from collections.abc import Mapping
from typing import Any

from portico.upstream.client import Client, Log
from portico.upstream.client_answers import NO_ANSWERS, ClientAnswers
from portico.upstream.handshake import ClientHello, HandshakeLimits, open_exchange
from portico.wires.wire import Address

ANONYMOUS = {"name": "portico", "version": "0"}
"""The client info that is sent by default."""


async def connect(
    address: Address,
    *,
    era: str = "auto",
    answers: ClientAnswers = NO_ANSWERS,
    limits: HandshakeLimits | None = None,
    log: Log | None = None,
    info: Mapping[str, Any] = ANONYMOUS,
) -> Client:
    """Connect to a server; raises TargetError if that fails."""
    client: Client | None = None

    def on_notification(method: str, params: bytes, about: bytes) -> None:
        if client is not None:
            client.on_notification(method, params)

    limits = limits or HandshakeLimits()
    hello = ClientHello(info, answers.capabilities, answers.serve, on_notification, limits, era)
    exchange, server = await open_exchange(address, hello)
    client = Client(exchange, server, info=info, answers=answers, limits=limits, log=log)
    return client
