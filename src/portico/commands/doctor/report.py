"""A diagnosis as `portico doctor` shows it: lines for people, and JSON."""

from typing import Any

from portico.commands.console.render import Screen
from portico.commands.doctor.diagnosis import Diagnosis
from portico.commands.doctor.faults import CHECKS, FAULTS
from portico.core.model.wording import counted


def to_json(path: str, found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON data."""
    problems = [
        {
            "check": FAULTS[one.fault].check,
            "fault": one.fault,
            "problem": one.problem,
            "remedy": one.remedy,
            "fixable": one.fix is not None,
            "fixed": one.is_fixed,
        }
        for one in found.findings
    ]
    facts = {check: found.facts.get(check, []) for check in CHECKS}
    return {"ok": not found.open, "config": path, "problems": problems, "facts": facts}


def print_diagnosis(screen: Screen, found: Diagnosis) -> None:
    """Print each check, its problems and their remedies."""
    width = max(map(len, CHECKS))
    for check in CHECKS:
        problems = found.of(check)
        shown = counted(len(problems), "problem") if problems else "ok"
        screen.print(f"{check.ljust(width)}  {shown}", "red" if problems else "green")
        for fact in found.facts.get(check, ()):
            screen.print(f"  {fact}", "dim")
        for one in problems:
            screen.print(f"  {one.problem}")
            screen.print(f"    {'fixed' if one.is_fixed else f'remedy: {one.remedy}'}", "yellow")
    if not found.open:
        screen.print("no problems" if not found.findings else "all problems are fixed", "bold")
        return
    fixable = [one for one in found.open if one.fix is not None]
    more = f"; `portico doctor --fix` fixes {len(fixable)} of them" if fixable else ""
    screen.print(f"{counted(len(found.open), 'problem')}{more}", "bold")
