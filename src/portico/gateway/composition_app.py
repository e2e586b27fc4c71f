"""The application behind `run` with several components: one server made of them, in their order."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from portico.core.catalog.cache_folder import CacheFolder
from portico.core.catalog.catalog import Identity
from portico.core.catalog.catalog_store import CatalogStore
from portico.core.catalog.history_store import histories
from portico.core.catalog.merge import Clash
from portico.core.config.paths import cache_folder, state_folder
from portico.core.config.schema import Config, Gateway, ServerEntry, Timeouts
from portico.core.model.errors import McpError, PorticoError, StartError, TargetError
from portico.core.model.message import Request, Response
from portico.core.model.types import Link
from portico.core.model.wording import close_matches, did_you_mean
from portico.core.protocol.codec import decoded
from portico.core.state.file_watcher import FileWatcher
from portico.core.state.report import failed, report
from portico.core.state.stderr import STDERR
from portico.core.state.user_secret import user_secret
from portico.core.state.watchdog import Watchdog
from portico.gateway.endpoints.gateway_tasks import GatewayTasks, memory_store
from portico.gateway.members.in_process_server import InProcessEntry
from portico.gateway.members.member import Member
from portico.gateway.members.member_kinds import MemberEnvironment, StderrSink
from portico.gateway.registry.registry import CompositionRules, Registry
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.components.classify import Component, ComponentError, classify
from portico.library.components.composition import Composer, Composition
from portico.library.components.import_in_thread import load_in_thread
from portico.upstream.connections.configured_address import address
from portico.upstream.wires.wire import Address

if TYPE_CHECKING:
    from portico.library.components.project_builds import ProjectBuilds
    from portico.library.tasks.worker.worker import TaskWorker

_WATCHDOG_S = 0.25
_WATCH_INTERVAL_S = 0.3
_IMPORT_S = 20.0


class CompositionOptions(Struct, frozen=True, kw_only=True):
    """The components to serve as one server, and how."""

    composition: Composition
    label: str
    """The command line, for messages."""
    version: str
    name: str = ""
    """The name of the server; empty for that of its only component, or else `portico`."""
    prefixed: bool = False
    shadows: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    """Links of the program that runs the composition, before all others."""
    composer: Composer | None = None
    """Loads changed files again; None to watch no files."""
    builds: "ProjectBuilds | None" = None
    """Builds the projects of changed sources, while files are watched."""
    idle_s: float = 0.0
    """Stop a server after being idle for this long; 0 never does."""


class _Introduction(Struct):
    instructions: str = ""


class CompositionApp:
    """A composition from start to end; create it inside a running event loop."""

    failure: McpError | None = None

    def __init__(self, options: CompositionOptions) -> None:
        self._options = options
        self._composition = options.composition
        self.stop = asyncio.Event()
        """Set to end the serving."""
        parts = options.composition.parts
        self._addresses = {part.component.name: part.component for part in parts}
        cache = cache_folder()
        self._tasks = GatewayTasks(_task_worker, options.label)
        environment = MemberEnvironment(
            info={"name": "portico", "title": "Portico", "version": options.version},
            memory=CatalogStore(
                os.path.join(cache, "catalogs"), report=report, disk_cache=CacheFolder(cache)
            ),
            secret=user_secret(state_folder()),
            report=report,
            on_stderr=lambda _, line: STDERR.write_line(line),
            address_of=self._address,
            history=histories(options.label, report),
            finish_task=self._tasks.finish_task,
        )
        self._registry = Registry(
            Config(
                path=options.label,
                gateway=Gateway(expose="all"),
                servers={
                    part.component.name: _entry(part.component, options.idle_s)
                    for part in parts
                    if part.server is None
                },
            ),
            environment,
            version=options.version,
            searcher=None,
            report_failure=failed,
            record_call=_record_nothing,
            links=(*options.links, *options.composition.links),
            local=_local(options.composition),
            rules=self._rules(options.composition),
            tasks=self._tasks,
        )
        self._watcher: FileWatcher | None = None

    @property
    def endpoint(self) -> ChainEndpoint:
        """The endpoint of all components."""
        return self._registry.endpoint()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """List all components and reject clashes; afterwards close them."""
        try:
            await self._prepare()
            self._registry.start()
            self._watch()
            with Watchdog(_WATCHDOG_S, report):
                yield
        finally:
            if self._watcher is not None:
                await self._watcher.close()
            await self._tasks.close(0.0)
            await self._registry.close()

    def _watch(self) -> None:
        composer = self._options.composer
        if composer is not None:
            self._watcher = FileWatcher(
                self._watched, self._reload, _WATCH_INTERVAL_S, supersedes=True
            )
            self._watcher.start()

    def _watched(self) -> list[str]:
        options = self._options
        assert options.composer is not None
        loaded = options.composer.files()
        if options.builds is None:
            return [*loaded, *self._binaries().values()]
        binaries = () if options.builds.is_building else self._binaries().values()
        return [*loaded, *options.builds.files(), *binaries]

    def _binaries(self) -> dict[str, str]:
        """Return the files of sandboxed components by their names."""
        return {name: one.binary for name, one in self._addresses.items() if one.binary}

    async def _reload(self, changed: frozenset[str]) -> None:
        """Load changed files again; calls in flight finish in the old ones."""
        composer, registry = self._options.composer, self._registry
        assert composer is not None
        names = ", ".join(sorted({os.path.basename(path) for path in changed}))
        try:
            if self._options.builds is not None:
                await self._options.builds.build(changed)
                if changed.isdisjoint((*composer.files(), *self._binaries().values())):
                    return  # the component that was built is reloaded when it is seen to change
            composition = await load_in_thread(lambda: composer.reload(changed), names, _IMPORT_S)
            links = (*self._options.links, *composition.links)
            await registry.recompose(_local(composition), links, self._rules(composition))
            self._composition = composition
            self._reload_binaries(changed)
        except Exception as error:  # noqa: BLE001  (a link may raise anything)
            is_ours = isinstance(error, PorticoError)
            why = str(error) if is_ours else f"{type(error).__name__}: {error}"
            report(f"{names} changed, but was not reloaded; keeping the previous version: {why}")
            return
        if not changed <= set(self._binaries().values()):  # those are reported when they are loaded
            report(f"{names} changed; reloaded")

    def _reload_binaries(self, changed: frozenset[str]) -> None:
        """Replace the workers of changed files once the new ones have listed their tools."""
        from portico.library.components.wasm_process import restamped

        registry = self._registry
        for name, file in self._binaries().items():
            if file in changed:
                classify(file)  # raises ComponentError if it is not a component any more
                servers = dict(registry.config.servers)
                servers[name] = restamped(servers[name])
                registry.config = replace(registry.config, servers=servers)
                registry.start_reload(name)

    def _rules(self, composition: Composition) -> CompositionRules:
        parts, options = composition.parts, self._options
        return CompositionRules(
            identity=self._identity,
            prefixed=options.prefixed,
            order=tuple(part.component.name for part in parts),
            shadows=frozenset(options.shadows),
            links={part.component.name: part.links for part in parts if part.links},
        )

    async def _prepare(self) -> None:
        """List what is not known yet, so that a clash is found before a client sees a name."""
        registry = self._registry
        await registry.refresh([one.name for one in registry.members.values() if one.is_pending])
        if clashes := registry.clashes():
            # A stored catalog may be older than the server.
            named = {name for one in clashes for name in (one.owner, one.newcomer)}
            await registry.refresh([name for name in named if _is_stale(registry.members[name])])
        if clashes := registry.clashes():
            raise ComponentError(_refusal(clashes))
        self._check_shadows()
        registry.check_links()
        for member in registry.members.values():
            if member.is_in_process:
                await _start(member)

    def _check_shadows(self) -> None:
        """Report names to shadow that no component offers."""
        names = self._registry.names()
        for name in self._options.shadows:
            if name not in names:
                hint = did_you_mean(close_matches(name, names)) or "check the name"
                report(f"--shadow: no component offers {name!r}; {hint}")

    def _identity(self) -> Identity:
        """Return the identity of the only component, or one for all of them."""
        options, parts = self._options, self._composition.parts
        only = parts[0].server if len(parts) == 1 else None
        if only is not None and not options.name:
            return only.identity
        return Identity(
            name=options.name or (only.name if only is not None else "portico"),
            version=options.version if only is None else only.identity.version,
            instructions=_instructions(list(self._registry.members.values())),
        )

    def _address(self, entry: ServerEntry, on_stderr: StderrSink) -> Address:
        """Return the address of a server. The entry of an alias is that of the config; a command
        from the command line gets the environment of that command line."""
        component = self._addresses[entry.name]
        if component.entry is not None or component.url:
            return address(entry, lambda line: on_stderr(entry.name, line))
        from portico.upstream.process.install_commands import install_seconds
        from portico.upstream.wires.child_wire import Command

        return Command(
            component.argv,
            title=entry.name,
            install_s=install_seconds(component.argv),
            environment=dict(os.environ),
            on_stderr=lambda line: on_stderr(entry.name, line),
        )


def _task_worker() -> "TaskWorker":
    from portico.library.tasks.worker.worker import TaskWorker

    return TaskWorker(memory_store, report=report)


def _local(composition: Composition) -> Mapping[str, InProcessEntry]:
    return {
        part.component.name: InProcessEntry(name=part.component.name, server=part.server)
        for part in composition.parts
        if part.server is not None
    }


def _entry(component: Component, idle_s: float) -> ServerEntry:
    if component.entry is not None:
        return replace(component.entry, name=component.name)
    command, *args = component.argv or ("",)
    usual = Timeouts()
    init, lists = max(usual.init, component.start_s), max(usual.list, component.start_s)
    timeouts = Timeouts(init=init, list=lists, idle=idle_s)
    return ServerEntry(
        name=component.name, command=command, args=tuple(args), url=component.url, timeouts=timeouts
    )


async def _start(member: Member) -> None:
    """Start the lifespan of a server in this process; raises StartError."""
    try:
        await member.provider.fetch_catalog()
    except TargetError as error:
        if isinstance(error.__cause__, StartError):
            raise error.__cause__  # noqa: B904  (with its own cause)
        raise


def _is_stale(member: Member) -> bool:
    return not member.is_in_process and not member.is_confirmed


def _refusal(clashes: Sequence[Clash]) -> str:
    names = dict.fromkeys(one.key for one in clashes)
    how = f"--shadow {next(iter(names))} to use only that of the first component"
    prefix = "use --prefix to put the component's name before each"
    return ";\n".join(map(str, clashes)) + f"; {prefix}, or {how}"


def _instructions(members: Sequence[Member]) -> str:
    """Return the instructions of all components, each under its name."""
    found = []
    for member in members:
        catalog = member.provider.offered()
        read = None if catalog is None else decoded(catalog.offer.introduction, _Introduction)
        if read is not None and read.instructions.strip():
            found.append(f"{member.name}: {read.instructions.strip()}")
    return "\n\n".join(found)


def _record_nothing(
    request: Request,
    context: object,
    server: str,
    name: str,
    response: Response | None,
    took_s: float,
) -> None:
    """Keep no log."""
