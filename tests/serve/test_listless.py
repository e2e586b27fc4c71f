"""A server that is there but cannot list its tools, since its own backend cannot be reached."""

from pathlib import Path

import pytest

from tests.rigs.running import shelf
from tests.serve.gateway import Pipes, command, text_in, written

pytestmark = pytest.mark.slow

WHY = "shelf could not list its tools; see the log"


def test_its_tools_are_unknown_and_not_none_until_it_can_be_asked(tmp_path: Path) -> None:
    home, words = tmp_path / "home", tmp_path / "words"
    config = written(tmp_path / "portico.toml", {"shelf": command(shelf(words))})
    for _ in range(2):  # the second time, there is a catalog without tools
        with Pipes(home, config, "--expose", "search") as gateway:
            gateway.initialize()
            refused = gateway.execute("shelf__book")
            assert refused["isError"]
            assert text_in(refused) == f"the tools of shelf are not known yet: {WHY}"
            assert "unavailable: the tools of shelf" in gateway.said("search_tools", query="a book")
            assert "tools not known yet" in gateway.said("gateway_status")
            assert gateway.status()["shelf"]["pending"]

    with Pipes(home, config, "--expose", "search") as gateway:
        gateway.initialize()
        gateway.said("refresh_tools")
        assert gateway.status()["shelf"]["error"] == WHY
        words.write_text("book")
        assert text_in(gateway.execute("shelf__book")) == "book"
        assert gateway.status()["shelf"]["error"] == ""
