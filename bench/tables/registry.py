"""Registries: the pull of a component of 20 MB, beside oras."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.report import Budget, Section, Table, at_most, rounded
from bench.scale import Scale
from tests.library.distribution.rigs import Home, component, docker_registry

HEADING = "Registries"

_SIZE = 20_000_000
_RATIO, _MEMORY_MB = 1.5, 30
_OURS, _ORAS = "portico pull", "oras 0.2.43"
_ABOUT = (
    "The client alone, in a new process with an empty cache: its imports are not counted, the "
    "transfer from docker-registry on this machine is. Portico also compares the digest and "
    "pins the tag; oras does neither.",
    "Memory is the growth of the largest resident size, from after the imports to the end.",
)
_PEAK = """
import json, re, sys, time
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
"""
_PULL = """
import asyncio
from portico.commands.authoring.published_config import PublishedConfig
from portico.library.distribution.blob_download import NoProgress
from portico.library.distribution.pull import Puller
import portico.core.http1.pool, ssl
found = PublishedConfig(sys.argv[1])
puller = Puller(found.publishing, found.lock, found.cache, NoProgress())
reference = found.reference(sys.argv[2])
open("/proc/self/clear_refs", "w").write("5")
before, start = peak(), time.perf_counter()
asyncio.run(puller.pull(reference))
took, after = time.perf_counter() - start, peak()
print(json.dumps([took * 1000, (after - before) / 1024]))
"""
_PULL_ORAS = """
import oras.client
client = oras.client.OrasClient(insecure=True)
open("/proc/self/clear_refs", "w").write("5")
before, start = peak(), time.perf_counter()
client.pull(target=sys.argv[2].removeprefix("oci://"), outdir=sys.argv[1])
took, after = time.perf_counter() - start, peak()
print(json.dumps([took * 1000, (after - before) / 1024]))
"""


def measure(scale: Scale) -> Section:
    """Time and memory of pulls, in turns."""
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with docker_registry(folder / "registry") as registry:
            author = Home(folder / "author").write(registry.host)
            reference = f"oci://{registry.host}/team/calc:1.0"
            author.ok("push", component(folder / "calc.wasm", _SIZE), reference)
            for number in range(scale.start_rounds):
                home = Home(folder / f"user{number}").write(registry.host)
                ours.append(_run(_PULL, str(home.config), reference, home))
                out = folder / f"out{number}"
                out.mkdir()
                theirs.append(_run(_PULL_ORAS, str(out), reference, home))
    rows = [
        (name, *(rounded(median(column)) for column in zip(*samples, strict=True)))
        for name, samples in ((_OURS, ours), (_ORAS, theirs))
    ]
    table = Table("A pull of 20 MB", ("client", "ms", "more MB"), rows)
    return Section(notes=list(_ABOUT), tables=[table], budgets=_budgets(ours, theirs))


def _budgets(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> list[Budget]:
    took, beside = (median(one for one, _ in samples) for samples in (ours, theirs))
    memory = median(one for _, one in ours)
    return [
        at_most("a pull of 20 MB, beside oras", took / beside, _RATIO, " times"),
        at_most("a pull of 20 MB: more memory", memory, _MEMORY_MB, " MB"),
    ]


def _run(script: str, first: str, reference: str, home: Home) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK + script, first, reference],
        env=home.env,
        capture_output=True,
        text=True,
        check=True,
    )
    took, memory = json.loads(done.stdout)
    return took, memory
