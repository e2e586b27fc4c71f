"""The official SDK's client at a composition: middleware, a component and another server in one
chain give what each gives alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

import pytest

from tests.interop.doors import Doors
from tests.interop.sdk import LEGACY, MODERN, Way
from tests.interop.test_python_sdk import (
    test_arguments_of_prompts_and_templates_are_completed as test_completions,
)
from tests.interop.test_python_sdk import (
    test_bad_arguments_are_told_to_the_model_or_to_the_client as test_bad_arguments,
)
from tests.interop.test_python_sdk import (
    test_every_kind_of_content_arrives as test_content,
)
from tests.interop.test_python_sdk import (
    test_prompts_are_filled_in as test_prompts,
)
from tests.interop.test_python_sdk import (
    test_resources_are_read_as_text_as_bytes_and_by_template as test_resources,
)
from tests.interop.test_python_sdk import (
    test_what_is_not_there_is_refused_with_its_code as test_unknown_names,
)
from tests.interop.test_python_sdk_changes import (
    test_a_changed_list_is_announced_and_then_read_anew as test_changed_lists,
)
from tests.interop.test_python_sdk_changes import (
    test_a_subscribed_resource_tells_of_its_updates as test_updates,
)
from tests.interop.test_python_sdk_talk import (
    test_a_call_that_the_client_abandons_is_cancelled_in_the_handler as test_cancellation,
)
from tests.interop.test_python_sdk_talk import (
    test_a_person_may_say_no as test_declined_questions,
)
from tests.interop.test_python_sdk_talk import (
    test_log_messages_come_from_the_level_the_client_wants as test_log_messages,
)
from tests.interop.test_python_sdk_talk import (
    test_progress_reaches_the_one_who_asked_for_it as test_progress,
)
from tests.interop.test_python_sdk_talk import (
    test_several_questions_are_put_at_once as test_several_questions,
)
from tests.interop.test_python_sdk_talk import (
    test_the_clients_model_is_asked as test_sampling,
)
from tests.interop.test_python_sdk_talk import (
    test_the_clients_roots_are_listed as test_roots,
)
from tests.support.pairs import pairs
from tests.support.proxy import RecordingProxy, recorded_http_server
from tests.support.running import FEATURES, portico_run

__all__ = [
    "test_bad_arguments",
    "test_cancellation",
    "test_changed_lists",
    "test_completions",
    "test_content",
    "test_declined_questions",
    "test_log_messages",
    "test_progress",
    "test_prompts",
    "test_resources",
    "test_roots",
    "test_sampling",
    "test_several_questions",
    "test_unknown_names",
    "test_updates",
]

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("composed")]

NOOP = """
def link(next):
    return lambda request, context: next(request, context)

def later(next):
    async def handle(request, context):
        return await next(request, context)
    return handle
"""
OTHER = """
from portico import Server

server = Server("other")

@server.tool
def unrelated() -> str:
    \"\"\"Stand beside the others.\"\"\"
    return "here"
"""
CHAINS = ("in process", "upstream", "behind an async link")
WAYS = pairs(CHAINS, ("stdio", "http"), (LEGACY[-1], *MODERN))


def components(chain: str, folder: Path) -> list[str]:
    """The arguments of `portico run`."""
    noop, other = folder / "noop.py", folder / "other.py"
    noop.write_text(NOOP)
    other.write_text(OTHER)
    if chain == "upstream":
        served = " ".join(portico_run(FEATURES))
        return [str(noop), str(other), f"features={served}"]
    link = f"{noop}:later" if chain == "behind an async link" else str(noop)
    return [link, str(FEATURES), str(other)]


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return {name: components(name, tmp_path_factory.mktemp("chain")) for name in CHAINS}


@pytest.fixture(scope="module")
def over_http(chains: dict[str, list[str]]) -> Iterator[Callable[[str], RecordingProxy]]:
    """The proxy in front of a chain, which the first use starts."""
    with ExitStack() as stack:

        @cache
        def proxy_of(name: str) -> RecordingProxy:
            first, *more = chains[name]
            return stack.enter_context(recorded_http_server(Path(first), *more))

        yield proxy_of


@pytest.fixture(params=WAYS, ids="-".join)
def way_of(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    """The chain, the transport and the version."""
    found: tuple[str, str, str] = request.param
    return found


@pytest.fixture
def chain(way_of: tuple[str, str, str], chains: dict[str, list[str]]) -> list[str]:
    return chains[way_of[0]]


@pytest.fixture
def features(
    way_of: tuple[str, str, str],
    chain: list[str],
    over_http: Callable[[str], RecordingProxy],
    tmp_path: Path,
) -> Iterator[Doors]:
    def over_websocket() -> NoReturn:
        raise NotImplementedError("no way here goes over WebSocket")

    proxy = partial(over_http, way_of[0])
    doors = Doors(Path(chain[0]), proxy, over_websocket, tmp_path, chain[1:])
    yield doors
    checked, problems = doors.verdict()
    assert problems == []
    assert checked >= 2


@pytest.fixture
def way(way_of: tuple[str, str, str], features: Doors, monkeypatch: pytest.MonkeyPatch) -> Way:
    _, transport, version = way_of
    return Way(features, transport, version, monkeypatch)


async def test_all_parts_are_listed_in_their_order(way: Way, chain: list[str]) -> None:
    async with way.connect() as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    other = names.index("unrelated")
    assert other == (0 if chain[-1].startswith("features=") else len(names) - 1)
    assert "text" in names
