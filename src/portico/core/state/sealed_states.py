"""The states of calls that span several requests, sealed while the client holds them."""

import asyncio
import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from portico.core.model.errors import InvalidParams
from portico.core.model.message import Request

if TYPE_CHECKING:
    from portico.core.protocol.seal import Seal


class SealedStates:
    """Seals states with one key, each for one principal and one request, for a limited time."""

    def __init__(self, key: bytes, clock: Callable[[], float], ttl_s: float) -> None:
        self._key = key
        self._clock = clock
        self._ttl_s = ttl_s
        self._seal: Seal | None = None

    async def load(self) -> None:
        """Load the cipher, so that `close_now` does not have to."""
        await self._loaded()

    async def close(self, state: Any, request: Request, principal: str) -> str:
        """Return the sealed state; raises TypeError or ValueError if it has no JSON form."""
        await self._loaded()
        return self.close_now(state, request, principal)

    def close_now(self, state: Any, request: Request, principal: str) -> str:
        """The same; if the cipher is not loaded, load it first."""
        seal = self._seal
        if seal is None:
            seal = self._seal = import_module("portico.core.protocol.seal").Seal(self._key)
        from portico.core.protocol.seal import NONCE_SIZE, binding

        return seal.close(
            state,
            binding=binding(request, principal),
            expires=self._clock() + self._ttl_s,
            nonce=os.urandom(NONCE_SIZE),
        )

    async def open(self, sealed: str, request: Request, principal: str) -> Any:
        """Return the state; raises InvalidParams unless it is this request's and still valid."""
        seal = await self._loaded()
        from portico.core.protocol.seal import SealBroken, binding

        try:
            return seal.open(sealed, binding=binding(request, principal), now=self._clock())
        except SealBroken as broken:
            raise InvalidParams(f"requestState is not valid: {broken}; start over") from None

    async def _loaded(self) -> "Seal":
        if self._seal is None:
            # Most servers ask nothing, and the cipher takes 15 ms to import: not on the loop.
            module = await asyncio.to_thread(import_module, "portico.core.protocol.seal")
            self._seal = module.Seal(self._key)
        return self._seal
