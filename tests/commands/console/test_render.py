"""What people see of progress."""

from io import StringIO

from portico.commands.console.render import Screen, Ticker
from portico.core.model.context import WAITED


def test_the_progress_of_waiting_is_shown_as_its_message_alone() -> None:
    shown = StringIO()
    ticker = Ticker(Screen(shown))
    ticker.show({"progress": 3 * WAITED, "message": "starting pyth"})
    ticker.show({"progress": 3, "message": "counting"})
    assert shown.getvalue().splitlines() == ["starting pyth", "progress 3 counting"]
