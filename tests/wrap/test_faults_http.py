"""A server at a URL misbehaves; its caller is told, everybody else goes on, nothing is left.

The rows are those of the upstream faults in ../shared/reference/reliability.md.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rigs.running import bad, listening
from tests.support.running import free_port
from tests.wrap.faults import (
    NAME,
    ODD,
    Client,
    Forward,
    Steady,
    Wrap,
    bounded,
    failure,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults-http")]
OPTIONS = ("--name", NAME, "--sharing", "per-client", "--call-timeout", "10")
HANGS = ("silent", "trickle", "stops-reading")


def wrapped(home: Path, *how: str) -> Iterator[Wrap]:
    with listening(bad("http", "plain", *how)) as url, Wrap(home, *OPTIONS, url) as wrap:
        yield wrap
    assert "Traceback" not in wrap.stderr()


@pytest.fixture(scope="module")
def portico(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrap]:
    """One Portico before a server that answers in streams; each client has its own session."""
    yield from wrapped(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def by_bodies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrap]:
    """The same before one that answers in plain bodies."""
    yield from wrapped(tmp_path_factory.mktemp("home"), "--json")


@pytest.fixture
def steady(portico: Wrap) -> Iterator[None]:
    """While the test runs, another client must not notice."""
    with portico.client() as client, Steady(client):
        yield


def fails_and_goes_on(client: Client, mode: str, kind: str, words: str) -> None:
    """The call ends in this error, and the next one works."""
    assert client.said("echo", text="before") == "before"
    hangs = mode in HANGS
    error = failure(client.call("bad", within=0.3 if hangs else None, mode=mode), kind)
    assert words in error["message"]
    assert client.said("echo", text="after") == "after"


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("silent", "timeout", "within 0.3 s"),
        ("stops-reading", "timeout", "within 0.3 s"),
        ("trickle", "timeout", "within 0.3 s"),
        ("garbage", "garbage", "that are not messages"),
        ("huge", "too_large", "longer than 16777216 bytes"),
        ("endless", "too_large", "longer than 16777216 bytes"),
        ("deep", "garbage", "nested deeper"),
        ("nan", "garbage", "not JSON"),
        ("bad-utf8", "garbage", "not UTF-8"),
        ("surrogate", "garbage", "not JSON"),
        ("nul", "garbage", "not JSON"),
        ("status", "http", "returned HTTP 503"),
        ("reset", "network", "dropped the connection"),
        ("gzip-bomb", "http", "compressed with gzip"),
        ("redirect", "http", "redirects more than 5 times"),
        ("big-header", "network", "sent an invalid HTTP response"),
    ],
)
def test_a_bad_answer_fails_its_call_and_no_other(
    portico: Wrap, mode: str, kind: str, words: str
) -> None:
    with bounded(portico), portico.client() as client:
        fails_and_goes_on(client, mode, kind, words)


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("silent", "timeout", "within 0.3 s"),
        ("huge", "too_large", "longer than 16777216 bytes"),
        ("endless", "too_large", "longer than 16777216 bytes"),
        ("deep", "garbage", "nested deeper"),
        ("nan", "garbage", "not JSON"),
        ("bad-utf8", "garbage", "not UTF-8"),
    ],
)
def test_a_bad_body_fails_its_call_and_no_other(
    by_bodies: Wrap, mode: str, kind: str, words: str
) -> None:
    with (
        by_bodies.client() as other,
        Steady(other),
        bounded(by_bodies),
        by_bodies.client() as client,
    ):
        fails_and_goes_on(client, mode, kind, words)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(("mode", "text"), [*ODD, ("stderr", "after the noise")])
def test_what_is_odd_but_can_be_read_is_answered_once(portico: Wrap, mode: str, text: str) -> None:
    with bounded(portico), portico.client() as client:
        assert client.said("bad", mode=mode) == text
        assert client.said("echo", text="after") == "after"


def test_a_call_that_timed_out_is_cancelled_at_the_server(portico: Wrap) -> None:
    with portico.client() as client:
        before = int(client.said("count", method="cancelled"))
        failure(client.call("slow", within=0.3, ms=60_000), "timeout")
        assert until(lambda: int(client.said("count", method="cancelled")) == before + 1)


@pytest.mark.usefixtures("steady")
def test_a_storm_of_changes_ends_in_one_refresh_a_second(portico: Wrap) -> None:
    with bounded(portico), portico.client() as client, client.listening() as heard:
        assert client.said("echo", text="before") == "before"
        before = int(client.said("count"))
        began = time.monotonic()
        assert client.said("bad", mode="storm") == "after the storm"
        assert until(lambda: int(client.said("count")) > before)
        assert until(lambda: heard)  # the server's own word is passed on, though nothing changed
        took = time.monotonic() - began
        assert int(client.said("count")) - before <= 2 + took
        assert len(heard) <= 2 + took


def test_a_server_that_is_gone_fails_calls_at_once_and_is_found_when_it_is_back(
    tmp_path: Path,
) -> None:
    """Its tools stay listed; a call that met its end is not repeated."""
    with Forward() as door, Wrap(tmp_path, *OPTIONS, door.url) as wrap:
        with listening(bad("http", "plain")) as url:
            door.leads_to(url)
            client = wrap.client()
            assert client.said("echo", text="before") == "before"
            listed = client.ask("tools/list")["result"]
            failure(client.call("bad", mode="killed"), "network")
            door.leads_to("")
            failure(client.call("echo", text="nobody there"), "network")
            assert client.ask("tools/list")["result"] == listed
        with listening(bad("http", "plain")) as url:
            door.leads_to(url)
            assert client.said("echo", text="back") == "back"
            # The new one never knew the old session, and has run nothing twice.
            assert client.said("count", method="tools/call") == "2"
            with client:
                pass


def test_a_lost_session_is_begun_anew_and_told_what_the_old_one_knew(tmp_path: Path) -> None:
    """The server forgets a session after twelve requests, and says 404 from then on."""
    with (
        listening(bad("http", "session-lost", "12")) as url,
        Wrap(tmp_path, *OPTIONS, url) as wrap,
        wrap.client() as client,
        client.listening() as heard,
    ):
        assert client.ask("resources/subscribe", {"uri": "test://note"})["result"] == {}
        assert client.ask("logging/setLevel", {"level": "warning"})["result"] == {}
        assert client.said("update") == "told"
        assert until(lambda: len(heard) == 1)
        for number in range(40):
            assert client.said("echo", text=str(number)) == str(number)
        begun = int(client.said("count", method="initialize"))
        assert begun > 2
        assert int(client.said("count", method="resources/subscribe")) >= begun - 1
        assert int(client.said("count", method="logging/setLevel")) >= begun - 1
        # Each call ran once: the 404 came before it could run.
        assert client.said("count", method="tools/call") == str(1 + 40 + 4)
        assert client.said("update") == "told"
        assert until(lambda: len(heard) > 1)
        assert {message["method"] for message in heard} == {"notifications/resources/updated"}
    assert "Traceback" not in wrap.stderr()


def test_many_who_meet_the_same_lost_session_are_all_answered(tmp_path: Path) -> None:
    def calls(client: Client) -> list[str]:
        return [client.said("echo", text=str(number)) for number in range(30)]

    with (
        listening(bad("http", "session-lost", "12")) as url,
        Wrap(tmp_path, "--sharing", "shared", url) as wrap,
        ThreadPoolExecutor(6) as pool,
    ):
        clients = [wrap.client() for _ in range(6)]
        for said in pool.map(calls, clients):
            assert said == [str(number) for number in range(30)]
        for client in clients:
            with client:
                pass
    assert "Traceback" not in wrap.stderr()


@pytest.mark.parametrize(("mode", "words"), [("cursor", "1000 pages"), ("many", "100000 entries")])
def test_a_list_without_end_is_given_up_and_the_rest_works(
    tmp_path: Path, mode: str, words: str
) -> None:
    with listening(bad("http", mode)) as url, Wrap(tmp_path, *OPTIONS, url) as wrap:
        with bounded(wrap), wrap.client() as client:
            assert "tools" in client.ask("tools/list")["result"]  # one page, as the server gives it
            assert client.ask("prompts/list")["result"]["prompts"][0]["name"] == "hello"
            assert client.said("echo", text="after") == "after"
        assert words in wrap.stderr()


def test_where_nobody_listens_the_handshake_says_so(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    with Wrap(tmp_path, "--name", NAME, url) as wrap, wrap.client() as client:
        assert "cannot be reached" in failure(client.hello, "network")["message"]
