"""A gateway starts from what is stored, and says what is still to come."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import bad, shelf
from tests.serve.gateway import Entry, Gateway, Pipes, command, result_of, text_in, written
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-start")]


class Shelves:
    """Ten servers whose tools are the words of files, and whose commands can be taken away."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.config = folder / "portico.toml"
        self._folder = folder
        self.python = folder / "python"
        self.put_back()
        self.entries: dict[str, Entry] = {}
        for number in range(10):
            name = f"shelf-{number}"
            self.fill(name, f"lists book-{number} announce")
            _, *words = shelf(folder / name)
            self.entries[name] = command([str(self.python), *words])
        self.write()

    def one_after_the_other(self) -> None:
        """Have each start a little later than the one before."""
        for number, entry in enumerate(self.entries.values()):
            late = ["-c", 'sleep $0; exec "$@"', str(number * 0.25), entry["command"]]
            entry["command"], entry["args"] = "sh", [*late, *entry["args"]]
        self.write()

    def write(self, *without: str, **more: Any) -> None:
        """The config, with some left out."""
        chosen = {name: entry for name, entry in self.entries.items() if name not in without}
        written(self.config, chosen, gateway={"expose": "search", **more})

    def fill(self, name: str, words: str) -> None:
        """Give one other tools."""
        (self._folder / name).write_text(words)

    def put_back(self) -> None:
        """All commands can be started."""
        self.python.symlink_to(shelf(Path())[0])

    def take_away(self) -> None:
        """None can."""
        self.python.unlink()

    def asked_once(self) -> None:
        """Let a gateway ask them all, and store what they said."""
        with Pipes(self.home, self.config) as gateway:
            gateway.initialize()
            assert until(lambda: not pending(gateway))


def pending(gateway: Pipes) -> list[str]:
    """Those that have not said yet what they offer."""
    return [name for name, status in gateway.status().items() if status["pending"]]


@pytest.fixture
def shelves(tmp_path: Path) -> Shelves:
    return Shelves(tmp_path)


def found(gateway: Pipes, query: str) -> list[str]:
    """The names of the tools that a search gives."""
    answer = result_of(gateway.call("search_tools", query=query, limit=50))
    return [tool["name"] for tool in answer["structuredContent"]["results"][0]["tools"]]


def test_with_a_stored_catalog_and_no_server_that_starts_all_but_calls_is_answered(
    shelves: Shelves,
) -> None:
    shelves.asked_once()
    shelves.take_away()
    with Pipes(shelves.home, shelves.config) as gateway:
        gateway.initialize()
        assert "execute_tool" in gateway.tools()
        # Nothing was searched for yet.
        assert "did you mean shelf-7__book-7" in text_in(gateway.execute("shelf-7__bok-7"))
        assert "shelf-7__book-7" in found(gateway, "book")
        described = result_of(gateway.call("describe_tool", name="shelf-7__book-7"))
        assert described["structuredContent"]["tools"][0]["tool"] == "book-7"
        failed = gateway.execute("shelf-7__book-7")
        assert failed["isError"]
        assert "shelf-7" in text_in(failed)
        assert str(shelves.python) in text_in(failed)
        assert "there is no command" in text_in(failed)
        assert "`portico servers test shelf-7`" in text_in(failed)
        assert failed["_meta"]["portico/error"]["server"] == "shelf-7"
        assert until(lambda: all(one["error"] for one in gateway.status().values()))
        assert all(one["tools"] == 3 for one in gateway.status().values())


def test_what_cannot_be_asked_keeps_its_tools_and_comes_back(shelves: Shelves) -> None:
    shelves.asked_once()
    shelves.take_away()
    with Pipes(shelves.home, shelves.config, "--no-refresh") as gateway:
        gateway.initialize()
        result_of(gateway.call("refresh_tools", server="shelf-1"))
        assert "shelf-1" in gateway.status()["shelf-1"]["error"]
        assert gateway.status()["shelf-2"]["error"] == ""
        assert "shelf-1__book-1" in found(gateway, "book")
        shelves.put_back()
        shelves.fill("shelf-1", "another-book")

        def well() -> bool:
            result_of(gateway.call("refresh_tools", server="shelf-1"))
            return not gateway.status()["shelf-1"]["error"]

        assert until(well)
        assert text_in(gateway.execute("shelf-1__another-book")) == "another-book"
        assert "shelf-1__book-1" not in found(gateway, "book")


def test_the_first_run_answers_at_once_and_announces_the_rest_in_few_words(
    shelves: Shelves,
) -> None:
    shelves.one_after_the_other()
    with Pipes(shelves.home, shelves.config) as gateway:
        hello = gateway.initialize()
        assert "shelf-3 (starting)" in hello["result"]["instructions"]
        assert "execute_tool" in gateway.tools()
        # Who names a tool waits for its server, which is just starting.
        assert text_in(gateway.execute("shelf-9__book-9")) == "book-9"
        assert until(lambda: not pending(gateway))
        assert until(lambda: len(found(gateway, "book")) == 10)
        assert "still loading" not in text_in(result_of(gateway.call("search_tools", query="book")))
        heard: list[str] = []

        def announced() -> bool:
            gateway.ask("ping")
            heard.extend(message["method"] for message in gateway.received_before())
            return bool(heard)

        assert until(announced)
        time.sleep(1.2)  # for what must not come: all that was learnt is told by then
        announced()
    assert set(heard) == {"notifications/tools/list_changed"}
    assert len(heard) <= 2


def test_what_was_learnt_is_there_at_the_next_start(shelves: Shelves) -> None:
    shelves.asked_once()
    with Pipes(shelves.home, shelves.config) as gateway:
        hello = gateway.initialize()
        assert "starting" not in hello["result"]["instructions"]
        assert len(found(gateway, "book")) == 10


def test_who_was_asked_while_clients_were_greeted_is_not_asked_again(shelves: Shelves) -> None:
    shelves.asked_once()
    with Pipes(shelves.home, shelves.config) as gateway:
        gateway.initialize()
        gateway.said("refresh_tools", server="shelf-1")
        assert until(lambda: all(one["starts"] for one in gateway.status().values()))
        time.sleep(1.2)  # for what must not come: a list is asked for once a second at most
        assert text_in(gateway.execute("shelf-1__lists")) == "1"


def test_a_server_that_could_not_start_is_asked_again_by_who_names_its_tool(
    shelves: Shelves,
) -> None:
    shelves.take_away()
    with Pipes(shelves.home, shelves.config) as gateway:
        gateway.initialize()
        refused = gateway.execute("shelf-1__book-1")
        assert refused["isError"]
        assert "the tools of shelf-1 are not known yet" in text_in(refused)
        assert "there is no command" in text_in(refused)
        plainly = gateway.call("shelf-1__book-1")["error"]
        assert plainly["code"] == -32602
        assert (
            "unknown tool: shelf-1__book-1; the tools of shelf-1 are not known yet"
            in plainly["message"]
        )
        assert "there is no command" in plainly["message"]
        shelves.put_back()
        assert until(lambda: not gateway.execute("shelf-1__book-1").get("isError"))
        described = result_of(gateway.call("describe_tool", name="shelf-1__book-1"))
        assert described["structuredContent"]["tools"][0]["tool"] == "book-1"


def test_a_server_that_has_left_the_config_is_gone_at_the_next_start(shelves: Shelves) -> None:
    shelves.asked_once()
    shelves.write("shelf-4")
    with Pipes(shelves.home, shelves.config, "--no-refresh") as gateway:
        gateway.initialize()
        assert "shelf-4" not in gateway.status()
        assert "shelf-4__book-4" not in found(gateway, "book")
        refused = gateway.execute("shelf-4__book-4")
        assert refused["isError"]
        assert "there is no tool 'shelf-4__book-4'" in text_in(refused)


def test_a_tool_that_vanished_between_search_and_execute_is_explained(shelves: Shelves) -> None:
    shelves.asked_once()
    with Pipes(shelves.home, shelves.config, "--no-refresh") as gateway:
        gateway.initialize()
        assert "shelf-5__book-5" in found(gateway, "book")
        shelves.fill("shelf-5", "lists announce")
        gateway.execute("shelf-5__announce")
        assert until(lambda: "shelf-5__book-5" not in found(gateway, "book"))
        refused = gateway.execute("shelf-5__book-5")
        assert refused["isError"]
        assert "there is no tool 'shelf-5__book-5'" in text_in(refused)


def test_searching_is_chosen_by_the_number_of_tools_and_stays(shelves: Shelves) -> None:
    shelves.write(expose="auto")
    shelves.asked_once()
    with Pipes(shelves.home, shelves.config, "--no-refresh") as gateway:
        gateway.initialize()
        assert "search_tools" in gateway.tools()  # of thirty tools
    shelves.write("shelf-9", expose="auto")
    with Pipes(shelves.home, shelves.config, "--no-refresh") as gateway:
        gateway.initialize()
        assert len(gateway.tools()) == 27
        answer = result_of(gateway.call("shelf-2__book-2"))
        assert text_in(answer) == "book-2"


def test_two_gateways_over_one_store_both_serve(shelves: Shelves, tmp_path: Path) -> None:
    shelves.write(http="")
    with (
        Gateway(shelves.home, shelves.config) as one,
        Gateway(shelves.home, shelves.config) as two,
        one.client() as first,
        two.client() as second,
    ):
        for number, client in enumerate((first, second)):
            call = {"name": f"shelf-{number}__lists", "arguments": {}}
            assert until(lambda c=client, a=call: "1" in str(c.call("execute_tool", **a)))


def test_one_that_crashes_at_the_start_is_marked_and_the_others_are_there(tmp_path: Path) -> None:
    entries = {"well": command(bad("stdio", "plain")), "broken": command(bad("stdio", "exits"))}
    config = written(tmp_path / "portico.toml", entries)
    with Pipes(tmp_path / "home", config) as gateway:
        gateway.initialize()
        assert until(lambda: pending(gateway) == ["broken"])
        assert until(lambda: gateway.status()["broken"]["error"] != "")
        assert "no API key" in gateway.status()["broken"]["error"]
        assert "broken: fail" in gateway.said("gateway_status")
        assert text_in(gateway.execute("well__echo", text="hi")) == "hi"


def test_a_gateway_without_tasks_and_agents_imports_neither(shelves: Shelves) -> None:
    traced = ("-X", "importtime", "-m", "portico")
    with Pipes(shelves.home, shelves.config, "--alone", by=traced) as gateway:
        gateway.initialize()
        assert "task_status" not in gateway.tools()
        assert "search_tools" in gateway.tools()
        gateway.execute("shelf-0__lists")
        before = _imported(gateway.stderr())
        gateway.said("list_tasks")
        after = _imported(gateway.stderr())
    assert "portico.gateway.endpoints.metatools" in before
    rarely = {
        "portico.library.tasks.store",
        "portico.library.tasks.mcp.task_tools",
        "portico.agents.turns",
    }
    assert before & rarely == set()
    assert "portico.library.tasks.mcp.task_tools" in after


def _imported(importtime: str) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in importtime.splitlines()}
