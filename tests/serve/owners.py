"""The processes that have a gateway, as their locks name them."""

from contextlib import suppress
from pathlib import Path

from tests.wrap.faults import alive, until

_WAIT_S = 60.0


def owners_in(state: Path) -> set[int]:
    """The owners of all gateways with this state folder."""
    found: set[int] = set()
    for lock in (state / "control").glob("serve-*.lock"):
        with suppress(FileNotFoundError):  # an owner that ends removes its lock
            pid = lock.read_text().partition(".")[0]
            found |= {int(pid)} if pid else set()
    return alive(found)


def owner_in(state: Path) -> int:
    """The only owner; waits for one that is being started."""
    found: set[int] = set()

    def is_one() -> bool:
        found.clear()
        found.update(owners_in(state))
        return len(found) == 1

    assert until(is_one, _WAIT_S), found
    return found.pop()
