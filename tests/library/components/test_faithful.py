"""Middleware from a file that passes everything on changes nothing: the tests of `wrap` hold for a
server behind it, in `run` and at the server's own endpoint of `serve`."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.rigs.running import listening, recorder
from tests.serve.gateway import Gateway, command, written
from tests.wrap.faults import Wrap, portico_command
from tests.wrap.talk import Client, Pipes, web
from tests.wrap.test_faithful import (
    Pair,
    script,
    test_a_result_of_an_unknown_type_passes_byte_for_byte,
    test_an_answer_has_the_id_as_it_was_written,
    test_an_error_passes_byte_for_byte,
    test_lists_are_the_upstreams_own,
    test_only_the_progress_token_is_another,
    test_params_and_results_pass_byte_for_byte,
    test_the_introduction_is_the_upstreams_own,
    test_unknown_notifications_pass_both_ways,
)

__all__ = [
    "test_a_result_of_an_unknown_type_passes_byte_for_byte",
    "test_an_answer_has_the_id_as_it_was_written",
    "test_an_error_passes_byte_for_byte",
    "test_lists_are_the_upstreams_own",
    "test_only_the_progress_token_is_another",
    "test_params_and_results_pass_byte_for_byte",
    "test_the_introduction_is_the_upstreams_own",
    "test_unknown_notifications_pass_both_ways",
]

pytestmark = [pytest.mark.faithful, pytest.mark.xdist_group("faithful-components")]

NOOP = """
from portico import after

def plain(next):
    return lambda request, context: after(next(request, context), lambda response: response)

def waiting(next):
    async def handle(request, context):
        return await next(request, context)
    return handle

links = [plain, waiting]
"""
WAYS = [
    (over, era) for over in ("stdio", "http", "server", "component") for era in ("legacy", "modern")
]


class Run(Wrap):
    """A running `portico run --http`."""

    verb = "run"


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    over, era = request.param
    folder = tmp_path_factory.mktemp("faithful")
    (folder / "script").write_bytes(script(era))
    noop = folder / "noop.py"
    noop.write_text(NOOP)
    recording, home, modern = folder / "heard", folder / "home", era == "modern"
    said = (str(recording), str(folder / "script"), *(["--modern"] * modern))
    served = recorder("http" if over == "http" else "stdio", *said)
    with ExitStack() as stack:
        if over == "stdio":
            words = portico_command(home, "run", str(noop), shlex.join(served))
            client: Client = stack.enter_context(Pipes(home, words=words, modern=modern))
            if not modern:
                client.hello()
        elif over == "http":
            url = stack.enter_context(listening(served))
            running = stack.enter_context(Run(home, str(noop), url))
            client = stack.enter_context(web(running.port, modern=modern))
        else:
            entry = {f"{over}s.odd": command(served)} if over == "component" else {}
            servers = {"odd": command(served)} if over == "server" else {}
            config = written(
                folder / "portico.toml", servers, gateway={"links": [noop.name]}, **entry
            )
            gateway = stack.enter_context(Gateway(home, config))
            door = web(gateway.port, path="/servers/odd/mcp", modern=modern)
            client = stack.enter_context(door)
        yield Pair(client, recording, wraps=over in ("stdio", "http"))
