"""Windows whose servers list otherwise each time read the same when another process takes over."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.serve.gateway import Pipes
from tests.serve.owners import owner_in
from tests.serve.test_shuffled import config_of
from tests.wrap.faults import alive, until
from tests.wrap.test_shuffled import ERAS, LISTS, WORDS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("expose", ["all", "search"])
@ERAS
def test_windows_read_the_same_after_another_process_has_taken_over(
    era: str, expose: str, tmp_path: Path
) -> None:
    words = tmp_path / "words"
    words.write_text(WORDS)
    config = config_of(tmp_path, words, era, expose)
    home = tmp_path / "home"

    def lists(window: Pipes) -> list[bytes]:
        return [json.dumps(window.ask(method)["result"]).encode() for method in LISTS]

    with Pipes(home, config) as first:
        first.initialize()
        first.call("refresh_tools")
        lists(first)
    with Pipes(home, config) as one, Pipes(home, config) as two:
        for window in (one, two):
            window.initialize()
        before = lists(one)
        assert lists(two) == before
        for _ in range(2):
            owner = owner_in(home / "state")
            one.call("refresh_tools")
            assert lists(two) == before
            _kill(owner)
            for window in (one, two):
                assert lists(window) == before
            two.call("refresh_tools")
            assert lists(one) == lists(two) == before
        told = [*one.received_before(), *two.received_before()]
        assert [one["method"] for one in told if "list_changed" in one.get("method", "")] == []


def _kill(owner: int) -> None:
    os.kill(owner, signal.SIGKILL)
    assert until(lambda: not alive({owner}))
