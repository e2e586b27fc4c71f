"""The example with a log of calls, in real processes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.served import EACH_ERA, WAYS, Served, example, served
from tests.support.messages import modern_meta

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("examples")]


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture(scope="module", params=WAYS)
def logged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Served, Path]]:
    """The way, what is served, and its log."""
    folder = tmp_path_factory.mktemp("logged")
    log = folder / "calls.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALL_LOG", str(log))
        with served(request.param, folder, "call_log") as shop:
            yield request.param, shop, log


@EACH_ERA
def test_every_call_is_logged_without_values(logged: tuple[str, Served, Path], era: str) -> None:
    way, shop, log = logged
    before = len(lines(log)) if log.exists() else 0
    with shop.client(era) as client:
        assert client.call(shop.name("echo"), message="private") == "Echo: private"
        client.ask("tools/list")
        client.answer(client.start(shop.name("get-sum"), a="private"))
        client.answer(client.start(shop.name("missing")))
        calls = lines(log)[before:]
        names = [shop.name(tool) for tool in ("echo", "get-sum", "missing")]
        assert [call["tool"] for call in calls] == names
        # The reference server itself returns a result for a tool that it does not have.
        missing = "tool error" if way == "run everything" else "error -32602"
        assert [call["outcome"] for call in calls] == ["ok", "tool error", missing]
        assert all(call["ms"] >= 0 for call in calls)
        assert "private" not in log.read_text()


@EACH_ERA
@pytest.mark.parametrize("expose", ["all", "search"])
def test_the_links_of_a_gateway_work_together(
    era: str, expose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("CALL_LOG", str(log))
    way, links = "serve everything", ("call_log", "rate_limit", "redact")
    with served(way, tmp_path, *links, expose=expose) as shop, shop.client(era) as client:
        for number in range(61):
            arguments: dict[str, Any] = {"message": f"mail {number}@example.com"}
            tool = "shop__echo"
            if expose == "search":
                tool, arguments = "execute_tool", {"name": tool, "arguments": arguments}
            id = client.start(tool, **arguments)
            if number < 60:
                assert client.said(id) == "Echo: mail [e-mail]"
        assert json.loads(client.error(id))["code"] == -31429
        calls = [(call["tool"], call["outcome"]) for call in lines(log)]
        assert calls == 60 * [("shop__echo", "ok")] + [("shop__echo", "error -31429")]


@EACH_ERA
def test_a_call_that_asks_the_user_is_logged_as_such(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("CALL_LOG", str(log))
    monkeypatch.setenv("NOTES_DATABASE", str(tmp_path / "notes.db"))
    notes = {"notes": {"path": example("notes_database")}}
    with (
        served("run python", tmp_path, "call_log", components=notes) as shop,
        shop.client(era, elicitation={}) as client,
    ):
        client.call("add_note", title="Milk", text="Buy milk")
        asking = modern_meta({"elicitation": {}}) if era == "modern" else None
        client.answer(client.start("delete_note", meta=asking, id=1))
    # A legacy client gets the question during the call, a modern one instead of a result.
    outcome = "asks the user" if era == "modern" else "tool error"
    assert [call["outcome"] for call in lines(log)] == ["ok", outcome]


def test_the_log_is_beside_the_file_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALL_LOG", raising=False)
    copy = tmp_path / "call_log.py"
    copy.write_text(Path(example("call_log")).read_text())
    with served("run python", tmp_path, str(copy.with_suffix(""))) as shop:
        with shop.client("modern") as client:
            client.call("echo", message="hello")
        assert [call["outcome"] for call in lines(tmp_path / "calls.jsonl")] == ["ok"]
