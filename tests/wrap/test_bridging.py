"""The official suite of one era passes at a server of the other, but for what has no like there."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.rigs.conformance import run_suite
from tests.support.messages import modern
from tests.support.running import WAIT_S
from tests.support.web import HEADERS, mirrored
from tests.wrap.wrapped import everything_over, lost, wrapped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("wrap-suite"),
]

BRIDGES = {"modern": "2025-11-25", "legacy": "2026-07-28"}
"""By the era of the server, the requirements of the other."""
CANNOT = {
    "modern": {
        # A stream of the modern era cannot be resumed, so no server closes one in the middle.
        "server-sse-polling:server-sse-disconnect-resume",
    },
    "legacy": {
        # The suite wants the question under the key `user_name`; a legacy question has no key,
        # so it gets one of ours. The rest of the scenario is not tried then.
        "input-required-result-basic-elicitation:sep-2322-elicitation-incomplete",
        "input-required-result-basic-elicitation:sep-2322-elicitation-complete",
        # It answers under `user_name` too.
        "input-required-result-ignore-extra-params:sep-2322-ignore-unexpected-params",
    },
}
"""By the era of the server, the checks that pass at one of the suite's own era only."""


@pytest.mark.parametrize("kind", ["http", "stdio"])
@pytest.mark.parametrize("era", BRIDGES)
def test_every_check_but_a_few_passes_at_a_server_of_the_other_era(
    era: str, kind: str, direct: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    expected = direct(BRIDGES[era])
    with everything_over(kind, era) as target, wrapped(target) as url:
        if era == "legacy":
            warm_up(url)
        found = run_suite(url, BRIDGES[era], tmp_path)
        assert lost(expected, found) == CANNOT[era]


def warm_up(url: str) -> None:
    """Start a process for clients that support questions: one check waits only 600 ms for it."""
    call = modern("tools/call", {"name": "test_simple_text"}, {"elicitation": {}})
    answer = httpx2.post(url, json=call, headers={**HEADERS, **mirrored(call)}, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
