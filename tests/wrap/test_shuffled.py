"""A server that lists the same in another order and in other bytes each time: nothing changes."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from portico.edge.windows.control import send_command
from tests.rigs.running import shuffler
from tests.support.running import WAIT_S
from tests.wrap.faults import Wrap, until
from tests.wrap.talk import Client, Web, web

pytestmark = pytest.mark.slow

LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
CHANGED = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
WORDS = "one two three four five six seven eight nine announce die"
ALL = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
ERAS = pytest.mark.parametrize("era", ["legacy", "modern", "both"])
PAGES = pytest.mark.parametrize("page", [(), ("4",)], ids=["whole", "paged"])


def everything(client: Client) -> dict[str, list[bytes]]:
    """All pages of all lists, byte for byte."""
    found: dict[str, list[bytes]] = {}
    for method in LISTS:
        cursor = None
        while cursor is not None or method not in found:
            page = client.ask(method, {} if cursor is None else {"cursor": cursor})
            found.setdefault(method, []).append(page)
            cursor = json.loads(page).get("nextCursor")
    return found


def notices(*clients: Client) -> list[bytes]:
    """All announcements that clients have got."""
    return [one for client in clients for method in CHANGED for one in client.heard(method)]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "words"
    file.write_text(WORDS)
    return file


def refresh(portico: Wrap, home: Path) -> None:
    """Have it fetch all lists again."""
    folder, name = home / "state" / "control", f"{portico.process.pid}.sock"
    assert until((folder / name).exists)
    done = send_command(str(folder), name, "refresh", WAIT_S)
    assert done is not None
    assert done["ok"], done


@contextmanager
def clients(port: int) -> Iterator[list[Web]]:
    """A client of each era that hears of all changes."""
    with ExitStack() as stack:
        legacy = stack.enter_context(web(port))
        modern = stack.enter_context(web(port, modern=True))
        modern.request("subscriptions/listen", {"notifications": ALL})
        modern.next("notifications/subscriptions/acknowledged")
        yield [legacy, modern]


@ERAS
@PAGES
def test_wrap_lists_the_same_bytes_and_announces_nothing(
    era: str, page: tuple[str, ...], tmp_path: Path, words: Path
) -> None:
    server = shuffler(era, words, *page)
    seen = []
    for _ in range(3):  # each time another process of Portico
        with Wrap(tmp_path, "--", *server) as portico, clients(portico.port) as both:
            for round in range(3):
                seen.append([everything(client) for client in both])
                refresh(portico, tmp_path)
                if round == 1:  # the server ends in the middle of a call, and another is started
                    both[0].answer(both[0].start("die"))
                    refresh(portico, tmp_path)
            seen.append([everything(client) for client in both])
            assert int(both[0].call("one")) > 0
            assert notices(*both) == []
    for found in seen:
        assert found == seen[0]
    names = [tool["name"] for tool in json.loads(seen[0][0]["tools/list"][0])["tools"]]
    assert page or sorted(names) == sorted(WORDS.split())


@ERAS
def test_a_real_change_among_shuffled_lists_is_announced_once_and_the_rest_stays(
    era: str, tmp_path: Path, words: Path
) -> None:
    with Wrap(tmp_path, "--", *shuffler(era, words)) as portico, clients(portico.port) as both:
        before = [json.loads(everything(client)["tools/list"][0])["tools"] for client in both]
        words.write_text(f"{WORDS} ten")
        refresh(portico, tmp_path)
        for client, known in zip(both, before, strict=True):
            for method in CHANGED:
                client.next(method)
            raw = everything(client)["tools/list"][0]
            assert [tool["name"] for tool in json.loads(raw)["tools"]] == [
                *(tool["name"] for tool in known),
                "ten",
            ]
        for _ in range(2):
            refresh(portico, tmp_path)
        assert len(notices(*both)) == 2 * len(CHANGED)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_burst_of_announcements_is_passed_on_once(era: str, tmp_path: Path, words: Path) -> None:
    with Wrap(tmp_path, "--", *shuffler(era, words)) as portico, clients(portico.port) as both:
        before = [everything(client) for client in both]
        refresh(portico, tmp_path)
        words.write_text(f"{WORDS} ten eleven twelve")
        both[0].call("announce")
        for client, known in zip(both, before, strict=True):
            for method in CHANGED:
                client.next(method)
            assert everything(client) != known
        # Nothing else is announced until the lists have been fetched again.
        now = [everything(client) for client in both]
        refresh(portico, tmp_path)
        assert [everything(client) for client in both] == now
        assert len(notices(*both)) == 2 * len(CHANGED)
