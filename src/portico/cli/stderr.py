"""What is logged goes where all that we tell an operator goes."""

import logging

from portico.state.stderr import STDERR


class StderrLog(logging.Handler):
    """Has each line of a record written; one who does not read it stops nobody."""

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        for line in self.format(record).splitlines():
            STDERR.say(line)

    def flush(self) -> None:
        """Wait a moment for what is not written yet."""
        STDERR.flush()


def log_to_stderr() -> None:
    """Log there, unless whoever was imported has arranged for something else."""
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(StderrLog(logging.WARNING))
