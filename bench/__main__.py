"""`python -m bench [--quick] [TABLE...]`: measure, print, and keep the last run in the docs."""

import argparse
import os
import shutil
import sys
import time
from contextlib import nullcontext
from importlib import import_module

from bench import compare, headline, machine, report
from bench.awake import awake
from bench.kept import Kept
from bench.report import PAGE, Budget, Section
from bench.scale import FULL, QUICK

# A table is a file of `bench/tables` with a HEADING and `measure(scale) -> Section`.
TABLES = {
    "http": "bench.tables.web",
    "listeners": "bench.tables.listeners",
    "stdio": "bench.tables.stdio",
    "memory": "bench.tables.memory",
    "wrap": "bench.tables.wrap",
    "serve": "bench.tables.serve",
    "chain": "bench.tables.chain",
    "components": "bench.tables.components",
    "wasm": "bench.tables.wasm",
    "middleware": "bench.tables.sandboxed_links",
    "windows": "bench.tables.windows",
    "agents": "bench.tables.agents",
    "tasks": "bench.tables.tasks",
    "growth": "bench.tables.task_growth",
    "logins": "bench.tables.logins",
    "registry": "bench.tables.registry",
    "bundles": "bench.tables.bundles",
    "hostile": "bench.tables.hostile",
    "parts": "bench.tables.parts",
}
# Their time is the disk's: beside loops that keep the cores awake, a commit takes 16 times as long.
_OF_DISKS = {"agents", "tasks", "growth"}


def main() -> int:
    """Run the selected measurements; a missed budget is a finding, not a failure."""
    options = _parser().parse_args()
    os.environ.setdefault("PORTICO_DEBUGGABLE", "1")  # else only root could measure its memory
    if sys.platform != "linux" or shutil.which("wrk") is None:
        print("the benchmarks need Linux (for /proc) and wrk (apt-get install wrk)")
        return 1
    budgets: list[Budget] = []
    dearer: list[str] = []
    kept = Kept(PAGE.read_text(encoding="utf-8"))
    for name in TABLES if "all" in options.table else options.table:
        table = import_module(TABLES[name])
        facts, started = machine.facts(), time.monotonic()
        is_awake = name not in _OF_DISKS
        with awake() if is_awake else nullcontext():
            section: Section = table.measure(QUICK if options.quick else FULL)
        if not options.quick:  # the figures of a smoke run are not comparable
            found = compare.dearer(name, section.tables, kept)
            section.notes += [f"dearer than in the run before: {line}" for line in found]
            dearer += found
        took = f"It took {time.monotonic() - started:.0f} s."
        took = f"Cores kept awake. {took}" if is_awake else took
        text = f"{facts} {took}\n\n{section.markdown()}"
        print(f"\n## {table.HEADING}\n\n{text}", flush=True)
        if not options.quick:
            _keep(name, table.HEADING, text, section.budgets)
        budgets += section.budgets
    if budgets:
        print(report.verdicts(budgets).markdown())
    print(report.summary(budgets))
    if dearer:
        print(f"{len(dearer)} figures are over {compare.MOST:g} times those of the run before:")
        print("\n".join(dearer))
    return 0


def _keep(name: str, heading: str, text: str, budgets: list[Budget]) -> None:
    if budgets:
        text = f"{text}\n{report.verdicts(budgets).markdown()}"
    report.keep(name, heading, text)
    headline.redraw()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "table", nargs="*", choices=(*TABLES, "all"), default="all", help="which (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: small counts, nothing kept"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
