"""Checks of what runs: orphans, gateways, and servers that clients start themselves."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from portico.commands.console.running import RunningPortico
from portico.commands.doctor.faults import Finding, finding
from portico.core.config.client_table import CLIENTS, this_system
from portico.core.config.paths import working_folder
from portico.core.config.read import read
from portico.core.config.schema import ServerEntry
from portico.core.documents.document import MAX_SIZE, open_document
from portico.core.documents.problems import ConfigError
from portico.core.documents.sections import is_codex, sections
from portico.upstream.process.children_file import ChildRecord, end_orphans, orphans
from portico.upstream.process.process_tree import read_proc


def check_orphans() -> Iterator[Finding]:
    """Find the children of killed Porticos."""
    for one in orphans():
        yield finding("orphan", f"process {one.pid} ({_command(one)}) has no Portico", _end(one))


def _end(orphan: ChildRecord) -> Callable[[], None]:
    return lambda: end_orphans([orphan])


def _command(orphan: ChildRecord) -> str:
    try:
        words = read_proc(f"/proc/{orphan.pid}/cmdline").decode(errors="replace").split("\0")
    except OSError:
        return "?"
    return os.path.basename(words[0]) or "?"  # its arguments may contain secrets


def check_gateways(porticos: list[RunningPortico], version: str) -> Iterator[Finding]:
    """Find gateways that could share another one, and those of another version of Portico."""
    gateways = [one.status for one in porticos if one.is_running and "gateway" in one.status]
    by_config: dict[str, list[dict[str, Any]]] = {}
    for status in gateways:
        by_config.setdefault(os.path.realpath(str(status["config"])), []).append(status)
        runs = status["gateway"].get("version")
        if runs != version:
            what = f"process {status['pid']} runs Portico {runs}; {version} is installed"
            yield finding("old-gateway", what, config=str(status["config"]))
    for config, found in by_config.items():
        # Gateways that windows share are several only if their accounts differ.
        alone = [one for one in found if one.get("alone")]
        for status in alone if len(found) > len(alone) else alone[1:]:
            what = (
                f"process {status['pid']} serves {config} alone, which another gateway serves, too"
            )
            yield finding("two-gateways", what, process=f"process {status['pid']}")


def check_clients(path: str) -> Iterator[Finding]:
    """Find servers of the config in the files of clients, which start them once more."""
    # As they are written, since the values of variables are not known for another program.
    entries = read(path, only=()).servers
    ours = {_identity(one): name for name, one in entries.items() if one.enabled}
    for file in _client_files():
        if os.path.realpath(file) == os.path.realpath(path):
            continue
        try:
            theirs = _servers_in(file)
        except ConfigError as error:
            yield finding("client-file", error.problems[0], file=file)
            continue
        for name, entry in theirs.items():
            same = ours.get(_identity(entry))
            if entry.enabled and same is not None:
                what = f"{file} has {name}, which is {same} of the config"
                yield finding("client", what, server=name, file=file)


def _servers_in(file: str) -> Mapping[str, ServerEntry]:
    """The servers in a client's file; raises ConfigError if the file itself is damaged."""
    if os.path.getsize(file) > MAX_SIZE:  # that of Claude Code also has its history
        return {}
    document = open_document(file)
    if not sections(document) or (document.kind == "toml" and not is_codex(document)):
        return {}  # settings without servers
    try:
        return read(file, only=()).servers
    except ConfigError:  # an entry that only its client understands
        return {}


def _client_files() -> list[str]:
    system, here = this_system(), working_folder()
    files = [
        file
        for row in CLIENTS.values()
        for file in (*row.sources(system), *(row.project_files(here) if here else ()))
    ]
    return [*dict.fromkeys(files)]


def _identity(entry: ServerEntry) -> tuple[str, ...]:
    """A server as two entries have it in common: its URL, or its command line."""
    return (entry.url,) if entry.url else (os.path.basename(entry.command), *entry.args)
