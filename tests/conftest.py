"""Lets a test be a coroutine, on a fresh event loop each; and run commands behind a link, too."""

import asyncio
import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings

from tests.support import left_over
from tests.support.clock import Clock, MovableLoop
from tests.support.running import LINKED, PLAIN

# Compiled modules are kept, as they are wherever people work: without them each of the thousands
# of processes compiles Portico again, and each worker every test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C also when a shell started us in the background: our children inherit that."""
    config.pluginmanager.register(left_over)
    left_over.pytest_configure(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.geteuid():  # root may look into every process
        os.environ.setdefault("PORTICO_DEBUGGABLE", "1")


# A busy machine is slow, not wrong.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loop", choices=("asyncio", "uvloop"), default="asyncio")


@pytest.fixture(scope="module", params=[PLAIN, LINKED], ids=["plain", "linked"])
def by(request: pytest.FixtureRequest) -> Sequence[str]:
    """What runs a command of Portico: as users do, and behind a link that passes everything on."""
    words: Sequence[str] = request.param
    return words


@pytest.fixture
def clock() -> Clock:
    """The clock of the test's event loop, which the test can move."""
    return Clock()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Wrap the coroutine test; pytest then calls what we leave in its place."""
    test = pyfuncitem.obj
    loop = _loop_factory(pyfuncitem)
    # Under @given the test pytest sees is Hypothesis's own, and ours is inside it.
    given = getattr(test, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        given.inner_test = _on_a_fresh_loop(given.inner_test, loop)
    elif inspect.iscoroutinefunction(test):
        pyfuncitem.obj = _on_a_fresh_loop(test, loop)


def _on_a_fresh_loop(
    test: Callable[..., Any], loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(test(*args, **kwargs))

    return run


def _loop_factory(test: pytest.Function) -> Callable[[], asyncio.AbstractEventLoop]:
    if "clock" in test.fixturenames:
        return MovableLoop
    if test.config.getoption("--loop") == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A long value is not its test's name: pytest puts that into the environment of children."""
    return f"{argname}-{len(val)}" if isinstance(val, str | bytes) and len(val) > 100 else None
