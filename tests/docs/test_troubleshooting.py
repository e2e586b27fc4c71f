"""The page of remedies is that of `portico doctor`: every fault, in the words of the code."""

import re

from portico.commands.doctor.faults import CHECKS, FAULTS, Fault
from tests.docs.pages import headings, section

PAGE = "docs/use/troubleshooting.md"


def _row(id: str, fault: Fault) -> str:
    own = fault.remedy == "{remedy}"
    names = re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), fault.remedy)
    return f"| `{id}` | {fault.title} | {'the message has it' if own else names} |"


def test_every_fault_is_on_the_page_with_its_remedy_and_no_other() -> None:
    for check in CHECKS:
        rows = [line for line in section(PAGE, check).splitlines() if line.startswith("| `")]
        assert rows == [_row(id, one) for id, one in FAULTS.items() if one.check == check], check


def test_the_page_has_the_checks_in_their_order() -> None:
    assert [one for one in headings(PAGE) if one in CHECKS] == [*CHECKS]
