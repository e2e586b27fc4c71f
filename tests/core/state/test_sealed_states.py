"""States that clients hold: sealed by a cipher that is imported when the first one is needed."""

import subprocess
import sys

import pytest

from portico.core.model.errors import InvalidParams
from portico.core.model.message import Request
from portico.core.state.sealed_states import SealedStates

FIRST_STATE = """
import asyncio, sys, threading

threads = {}

class Watch:
    def find_spec(self, name, path=None, target=None):
        threads[name] = threading.current_thread()

sys.meta_path.insert(0, Watch())

from portico.core.model.message import Request
from portico.core.state.sealed_states import SealedStates

async def main():
    states = SealedStates(b"k" * 32, lambda: 0.0, 60)
    assert "cryptography" not in sys.modules
    request = Request(method="tools/call", params=b"{}")
    sealed = await states.close({"a": 1}, request, "ana")
    assert await states.open(sealed, request, "ana") == {"a": 1}
    assert threads["cryptography"] is not threading.main_thread()

asyncio.run(main())
print("done")
"""


def request(params: bytes = b'{"name":"x"}') -> Request:
    return Request(method="tools/call", params=params)


def states() -> SealedStates:
    return SealedStates(b"k" * 32, lambda: 0.0, 60)


def test_the_cipher_is_imported_in_a_thread_when_the_first_state_is_sealed() -> None:
    code = [sys.executable, "-c", FIRST_STATE]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("done", "")


async def test_a_state_is_bound_to_its_principal_and_its_request() -> None:
    sealed = await states().close(["ana"], request(), "ana")
    assert await states().open(sealed, request(), "ana") == ["ana"]
    for other, principal in ((request(), "bob"), (request(b'{"name":"y"}'), "ana")):
        with pytest.raises(InvalidParams, match="start over"):
            await states().open(sealed, other, principal)


async def test_rounds_of_one_request_share_its_binding_however_it_is_written() -> None:
    sealed = await states().close(1, request(), "ana")
    again = rb'{"request\u0053tate":"s","inputResponses":{},"_meta":{},"na\u006de":"x"}'
    assert await states().open(sealed, request(again), "ana") == 1
