"""The table that decides which calls become tasks."""

from itertools import product

from portico.library.functions.task_mode import TaskSupport
from portico.library.tasks.mcp import task_plan
from portico.library.tasks.mcp.task_plan import ClientSupport, Facts, Plan, Step, plan

BOTH = (False, True)
FACTS = [
    Facts(in_task, tool, required, client, *others)
    for in_task, tool, required, client in product(BOTH, TaskSupport, BOTH, ClientSupport)
    for others in product(BOTH, BOTH, BOTH, BOTH)
]
CELLS = len(FACTS[0])


def rows() -> list[tuple[list[str], Plan]]:
    """The rows that the module documents: their cells, and the plan of each."""
    found: list[tuple[list[str], Plan]] = []
    for line in (task_plan.__doc__ or "").splitlines():
        words = line.split()
        if words and words[0].isdigit():
            step, *by = words[CELLS + 1 :]
            makes = {f"by_{word}": True for word in by if word not in ("by", "or")}
            found.append((words[1 : CELLS + 1], Plan(Step[step], **makes)))
    return found


def matches(cells: list[str], facts: Facts) -> bool:
    shown = [one.value if hasattr(one, "value") else "yes" if one else "no" for one in facts]
    return all(cell in ("-", fact) for cell, fact in zip(cells, shown, strict=True))


def test_the_first_row_that_matches_is_the_plan() -> None:
    documented = rows()
    used = set()
    for facts in FACTS:
        first = next(at for at, (cells, _) in enumerate(documented) if matches(cells, facts))
        assert plan(facts) == documented[first][1], facts
        used.add(first)
    assert used == set(range(17))
