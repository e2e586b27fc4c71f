"""`make bench-tokens`: the tokens that a model reads of all tools, and with search."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bench import headline, machine, report
from bench.dialogue import Task, tasks
from bench.gateway import Fleet, GatewayPipe, spread
from bench.machine import NODE
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.workload import CATALOG, ROOT, encode

HEADING = "Tokens that a model reads"
SIZES = {45: 3, 150: 8, 500: 15, 6000: 20}
"""How many tools, and of how many servers."""
LIMIT = 1000
TOKENIZER = ROOT / ".tools" / "node_modules" / "gpt-tokenizer"
_SCRIPT = Path(__file__).with_name("tokens.mjs")
_ABOUT = (
    "Counted with gpt-tokenizer, o200k_base; other tokenizers give other figures. Definitions are "
    "counted as listed, in compact JSON; a client may add its own text to each.",
    "The tools are real ones. A task is: search in a few words, describe the first hit, execute "
    "it. The result of the tool itself is the same either way, and not counted.",
    "A client gives a model either the text of a result or its structuredContent.",
)


def count(texts: Sequence[str]) -> list[int]:
    """The tokens of each text."""
    asked = json.dumps(list(texts)).encode()
    ran = subprocess.run([NODE, _SCRIPT], input=asked, capture_output=True, check=True)
    counted: list[int] = json.loads(ran.stdout)
    return counted


@dataclass(frozen=True)
class Read:
    """The tokens to read with a number of tools."""

    tools: int
    servers: int
    everything: int
    """All definitions."""
    parts: Mapping[str, int]
    """The definition of each meta-tool."""
    instructions: int
    task: Mapping[str, float]
    """The cost of one task, by step."""

    @property
    def meta(self) -> int:
        """All meta-tools."""
        return sum(self.parts.values())

    def total(self, steps: Sequence[str]) -> float:
        """All that is read for one task."""
        return self.meta + self.instructions + sum(self.task[step] for step in steps)


def measure(tools: int, servers: int) -> Read:
    """Ask a gateway of this size, both ways."""
    with Workspace() as workspace:
        fleet = Fleet(workspace, spread(tools, servers))
        fleet.fill()
        everything, _ = _offered(fleet, "all")
        meta, instructions, found = _searched(fleet)
    texts = [encode(everything).decode(), instructions]
    whole, told = count(texts)
    parts = count([encode(tool).decode() for tool in meta])
    if len(everything) != tools:
        raise RuntimeError(f"{len(everything)} tools are listed instead of {tools}")
    names = [tool["name"] for tool in meta]
    return Read(tools, servers, whole, dict(zip(names, parts, strict=True)), told, _steps(found))


def _offered(fleet: Fleet, expose: str) -> tuple[list[dict[str, Any]], str]:
    """The list, and the instructions."""
    server = GatewayPipe(fleet.contender(expose, "--expose", expose), fleet)
    with server.process:
        return server.offered()


def _searched(fleet: Fleet) -> tuple[list[dict[str, Any]], str, list[Task]]:
    server = GatewayPipe(fleet.contender("search", "--expose", "search"), fleet)
    with server.process:
        meta, instructions = server.offered()
        return meta, instructions, tasks(server, fleet)


def _steps(found: Sequence[Task]) -> dict[str, float]:
    """The mean of each step over all tasks."""
    steps = [task.texts() for task in found]
    counted = [dict(zip(texts, count(list(texts.values())), strict=True)) for texts in steps]
    return {step: mean(tokens[step] for tokens in counted) for step in counted[0]}


def _section(found: Sequence[Read]) -> Section:
    budgets = [_budget(read) for read in found]
    return Section([_first(found), _tasks(found), _parts(found)], budgets, list(_ABOUT))


def _budget(read: Read) -> Budget:
    return at_most(f"meta-tools in front of {read.tools:,} tools", read.meta, LIMIT, " tokens")


def _first(found: Sequence[Read]) -> Table:
    columns = ("tools", "servers", "all definitions", "meta-tools", "instructions", "times less")
    rows = []
    for read in found:
        times = read.everything / (read.meta + read.instructions)
        figures = (read.servers, read.everything, read.meta, read.instructions)
        rows.append([f"{read.tools:,}", *(f"{n:,}" for n in figures), f"{times:,.1f}x"])
    return Table("Before anything is asked", columns, rows)


def _tasks(found: Sequence[Read]) -> Table:
    columns = ("tools", *found[0].task, "with one task, text", "structured", "times less, text")
    rows = []
    for read in found:
        text = read.total([step for step in read.task if "structured" not in step])
        structured = read.total([step for step in read.task if "text" not in step])
        cells = [f"{tokens:,.0f}" for tokens in (*read.task.values(), text, structured)]
        rows.append([f"{read.tools:,}", *cells, f"{read.everything / text:,.1f}x"])
    return Table("One task: the mean of several", columns, rows)


def _parts(found: Sequence[Read]) -> Table:
    names = list(found[0].parts)
    rows = [[f"{read.tools:,}", *(f"{read.parts[name]:,}" for name in names)] for read in found]
    return Table("The meta-tools, one by one", ("tools", *names), rows)


def main() -> int:
    """Print, and keep in the docs; a missed budget is a finding, not a failure."""
    for needed in (CATALOG, NODE, TOKENIZER):
        if not needed.exists():
            print(f"not there: {needed} (`make setup` installs the tools)")
            return 1
    facts = machine.facts()
    section = _section([measure(tools, servers) for tools, servers in SIZES.items()])
    verdicts = report.verdicts(section.budgets).markdown()
    text = f"{facts}\n\n{section.markdown()}\n{verdicts}"
    print(f"## {HEADING}\n\n{text}\n{report.summary(section.budgets)}")
    report.keep("tokens", HEADING, text)
    headline.redraw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
