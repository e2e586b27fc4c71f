"""Questions of a command to the person at the terminal, or the answers of `--yes`."""

import sys

from portico.commands.console.render import Screen
from portico.core.model.errors import PorticoError


class Declined(PorticoError):
    """The person declined; nothing was changed."""

    exit_code = 1


class Dialog:
    """Prompts at the terminal, or takes `--yes` for every answer."""

    def __init__(self, *, yes: bool, dry_run: bool = False) -> None:
        self.out = Screen(sys.stdout)
        self.err = Screen(sys.stderr)
        self.dry_run = dry_run
        self.asks = not yes and not dry_run
        self._is_at_terminal = sys.stdin.isatty() and self.out.is_terminal

    @property
    def can_ask(self) -> bool:
        """True if there is a person at a terminal who has not given the answers."""
        return self.asks and self._is_at_terminal

    def note(self, text: str) -> None:
        """Print a note."""
        self.err.print(f"portico: {text}")

    def choose(self, question: str, answers: str) -> str:
        """Return the letter of the answer; the first is for Enter, and for `--yes`."""
        if not self.asks:
            return answers[0]
        while True:
            reply = self._line(question).strip().lower()[:1] or answers[0]
            if reply in answers:
                return reply

    def confirm(self, question: str) -> bool:
        """Ask a question whose usual answer is yes."""
        return self.choose(f"{question} [Y/n] ", "yn") == "y"

    def value(self, question: str) -> str:
        """Read a value that is not shown; empty if none is given."""
        if not self.asks:
            return ""
        self._check_terminal()
        import getpass

        try:
            return getpass.getpass(question)
        except EOFError:
            return ""

    def _line(self, question: str) -> str:
        self._check_terminal()
        try:
            return input(question)
        except EOFError:
            raise Declined("nothing was changed: no answer") from None

    def _check_terminal(self) -> None:
        if not self._is_at_terminal:
            raise Declined(
                "nothing was changed: there is no terminal to ask at; "
                "add --yes to do what is shown, or --dry-run to see the changes"
            )
