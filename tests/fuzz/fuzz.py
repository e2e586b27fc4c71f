"""Throws broken input at Portico: `python tests/fuzz/fuzz.py --minutes 10`.

What broke it is kept as files, to be sent again with `--replay FOLDER`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a file, not as a module

from tests.fuzz import acp_target, control_target, task_target
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS, Broken, Target

TARGETS["acp"] = acp_target.AcpTarget
TARGETS["control"] = control_target.ControlTarget
TARGETS["tasks"] = task_target.TaskTarget
_KEEP = Path(tempfile.gettempdir()) / "portico-fuzz"
_ROUND_S = 5.0


def fuzz(seconds: float, seed: int, keep: Path, names: list[str]) -> int:
    """Fuzz each target in turn for so long; the number of failures."""
    inputs = dict.fromkeys(names, 0)
    failures = 0
    began = time.monotonic()
    round = 0
    while time.monotonic() - began < seconds:
        for name in names:
            left = seconds - (time.monotonic() - began)
            taken, failed = one_round(name, seed + round, min(_ROUND_S, left), keep)
            inputs[name] += taken
            failures += failed
            round += 1
        shown = ", ".join(f"{name} {count}" for name, count in inputs.items())
        print(f"{time.monotonic() - began:6.0f} s  {shown}, failures {failures}", flush=True)
    return failures


def one_round(name: str, seed: int, seconds: float, keep: Path) -> tuple[int, int]:
    """A fresh target with inputs of its own; how many it took, and whether it broke."""
    target = TARGETS[name](Random(seed))
    mutator = Mutator(seed, target.valid)
    taken = 0
    end = time.monotonic() + max(seconds, 0.5)
    try:
        while time.monotonic() < end:
            target.feed([mutator.next() for _ in range(target.group)])
            taken += target.group
    except Broken as broken:
        _keep(keep, f"{name}-{seed}", broken)
        _give_up(target)
        return taken, 1
    try:
        target.close()
    except Broken as broken:
        _keep(keep, f"{name}-{seed}-end", broken)
        return taken, 1
    return taken, 0


def _give_up(target: Target) -> None:
    try:
        target.close()
    except Exception as error:  # noqa: BLE001  (it is broken already)
        print(f"  and it did not close: {error}", file=sys.stderr)


def _keep(folder: Path, name: str, broken: Broken) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    print(f"BROKEN {name}: {broken}", file=sys.stderr)
    for number, body in enumerate(broken.inputs):
        (folder / f"{name}-{number:02}.bin").write_bytes(body)
    print(f"  {len(broken.inputs)} inputs kept in {folder}", file=sys.stderr)


def replay(folder: Path, names: list[str]) -> int:
    """Send kept inputs again, each alone; the number of failures."""
    failures = 0
    for name in names:
        for file in sorted(folder.glob(f"{name}-*.bin")):
            target = TARGETS[name](Random(0))
            try:
                target.feed([file.read_bytes()])
            except Broken as broken:
                failures += 1
                print(f"BROKEN by {file.name}: {broken}", file=sys.stderr)
            _give_up(target)
    return failures


def main(argv: list[str]) -> int:
    """Exit 1 if anything broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run (default: the time)")
    parser.add_argument("--keep", type=Path, default=_KEEP, metavar="FOLDER")
    parser.add_argument("--target", action="append", choices=TARGETS, help="all unless named")
    parser.add_argument("--replay", type=Path, metavar="FOLDER")
    options = parser.parse_args(argv)
    names = options.target or list(TARGETS)
    if options.replay is not None:
        failures = replay(options.replay, names)
    else:
        seed = options.seed if options.seed is not None else int(time.time())
        print(f"seed {seed}, {options.minutes:g} minutes, targets: {', '.join(names)}")
        failures = fuzz(options.minutes * 60, seed, options.keep, names)
    print("nothing broke" if not failures else f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
