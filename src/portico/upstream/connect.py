"""Makes a client of a server: the one call that commands and tests begin with."""

from collections.abc import Mapping
from typing import Any

from portico.upstream.client import Client, Log
from portico.upstream.client_answers import NO_ANSWERS, ClientAnswers
from portico.upstream.handshake import ClientHello, HandshakeLimits, open_exchange
from portico.wires.wire import Address

ANONYMOUS = {"name": "portico", "version": "0"}
"""Who we say we are, unless a caller says it better."""


async def connect(
    address: Address,
    *,
    era: str = "auto",
    answers: ClientAnswers = NO_ANSWERS,
    limits: HandshakeLimits | None = None,
    log: Log | None = None,
    info: Mapping[str, Any] = ANONYMOUS,
) -> Client:
    """Open a conversation with a server; raises TargetError if there is none to be had."""
    client: Client | None = None

    def on_notification(method: str, params: bytes, about: bytes) -> None:
        if client is not None:
            client.on_notification(method, params)

    limits = limits or HandshakeLimits()
    hello = ClientHello(info, answers.capabilities, answers.serve, on_notification, limits, era)
    exchange, server = await open_exchange(address, hello)
    client = Client(exchange, server, info=info, answers=answers, limits=limits, log=log)
    return client
