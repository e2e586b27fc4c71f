"""Makes a client of a server: the one call that commands and tests begin with."""

from collections.abc import Mapping
from typing import Any

from portico.upstream.answers import NO_ANSWERS, Answers
from portico.upstream.client import Client, Log
from portico.upstream.opening import Hello, Limits, open_conversation
from portico.wires.wire import Address

ANONYMOUS = {"name": "portico", "version": "0"}
"""Who we say we are, unless a caller says it better."""


async def connect(
    address: Address,
    *,
    era: str = "auto",
    answers: Answers = NO_ANSWERS,
    limits: Limits | None = None,
    log: Log | None = None,
    info: Mapping[str, Any] = ANONYMOUS,
) -> Client:
    """Open a conversation with a server; raises TargetError if there is none to be had."""
    client: Client | None = None

    def noticed(method: str, params: bytes, about: bytes) -> None:
        if client is not None:
            client.noticed(method, params)

    limits = limits or Limits()
    hello = Hello(info, answers.capabilities, answers.serve, noticed, limits, era)
    exchange, server = await open_conversation(address, hello)
    client = Client(exchange, server, info=info, answers=answers, limits=limits, log=log)
    return client
