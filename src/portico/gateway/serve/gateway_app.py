"""The application behind `serve`: the registry of a config, its log, metrics and commands."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from portico.core.catalog.cache_folder import CacheFolder
from portico.core.catalog.catalog_store import CatalogStore
from portico.core.catalog.history_store import histories
from portico.core.config.paths import cache_folder, log_file, state_folder, working_folder
from portico.core.config.schema import Config, Search
from portico.core.model.errors import PorticoError
from portico.core.state.files import is_writable
from portico.core.state.report import failed, report
from portico.core.state.user_secret import user_secret
from portico.core.state.watchdog import Watchdog
from portico.edge.windows.client_fit import ClientFit
from portico.edge.windows.preferences import SERVER, folder_in, name_in
from portico.gateway.endpoints.gateway_tasks import GatewayTasks, file_store, has_store
from portico.gateway.members.in_process_server import InProcessEntry
from portico.gateway.members.member_kinds import MemberEnvironment, no_history
from portico.gateway.registry.registry import Registry
from portico.gateway.serve.configured_links import ConfiguredLinks, load_configured
from portico.gateway.serve.gateway_agents import GatewayAgents, has_agents
from portico.gateway.serve.reload import ConfigWatcher
from portico.gateway.serve.serve_options import ServeOptions
from portico.library.chain.endpoint import ChainEndpoint, CurrentEndpoint
from portico.library.components.cycles import MAX_DEPTH, is_too_deep
from portico.library.observe.journal import Journal, open_journal
from portico.library.observe.metrics import Metrics

if TYPE_CHECKING:
    from portico.core.model.types import Endpoint, LimitedEndpoint
    from portico.gateway.search.searcher import Searcher
    from portico.library.tasks.store.record import TaskRecord
    from portico.library.tasks.worker.worker import TaskWorker
    from portico.upstream.process.family import Family

_CONTINUE_S = 0.2
"""The delay before stored tasks are looked for: the first clients take precedence."""
_MAX_RECENT = 20
"""Reports that are kept for windows that connect later."""


class GatewayApp:
    """A gateway from start to end; create it inside a running event loop."""

    def __init__(self, options: ServeOptions, configured: ConfiguredLinks | None = None) -> None:
        """`configured` are the links that the config names, which are loaded."""
        configured = configured or ConfiguredLinks()
        if is_too_deep():
            raise PorticoError(
                f"cannot start: {MAX_DEPTH} gateways are nested; remove the server of "
                f"{options.config.path} that starts Portico"
            )
        self._options = options
        self._listeners: list[Callable[[str], None]] = []
        self._recent: deque[str] = deque(maxlen=_MAX_RECENT)
        self.url = ""
        """The URL for clients, if it serves HTTP."""
        self.control_socket = ""
        """The path of the control socket, if there is one."""
        self.metrics = Metrics()
        self.journal: Journal = open_journal(
            options.config.gateway.log, report, self.metrics.record_call
        )
        config = options.config
        cache = cache_folder()
        disk_cache = CacheFolder(cache, config.gateway.cache_mb)
        memory = CatalogStore(
            os.path.join(cache, "catalogs"), report=self.tell, disk_cache=disk_cache
        )
        self._folder = working_folder()
        self.tasks = self._open_tasks(config)
        environment = MemberEnvironment(
            info={"name": "portico", "title": "Portico", "version": options.version},
            memory=memory if options.cache else None,
            secret=user_secret(state_folder()),
            report=self.tell,
            on_stderr=self.journal.record_stderr,
            gateway=options.key(),
            folder=self._folder,
            history=histories(config.path, self.tell) if options.cache else no_history,
            finish_task=None if self.tasks is None else self.tasks.finish_task,
        )
        self.agents: GatewayAgents | None = None
        if self.tasks is not None and has_agents(config):
            assert config.agents is not None
            self.agents = GatewayAgents(config.agents, self.tasks, state_folder(), self)
        self.registry = Registry(
            config,
            environment,
            version=options.version,
            searcher=lambda: _searcher(config.search, disk_cache, self.tell),
            report_failure=failed,
            record_call=self.journal.record_call,
            expose=options.expose,
            links=(*options.links, *configured.links),
            local={**options.local, **configured.local, **self._agent_tools(config)},
            tasks=self.tasks,
        )
        self.registry.check_links()
        self.registry.folders.in_use = self._folders_in_use
        self.window_folders: Callable[[], Collection[str]] = tuple
        self.window_clients: Callable[[], Mapping[str, int]] = dict
        """Returns the folders of the windows."""
        found, expose = self.registry, options.expose or ""
        self._fit = ClientFit(found.facts, expose, options.client, lambda: found.counting)
        self._relinking = asyncio.Lock()  # the chain that was requested last is the one that stays
        self._links_problem = ""
        """Why the links of the config are not in use; empty if they are."""
        self._routes_changed: list[Callable[[], None]] = []
        self._watcher: ConfigWatcher | None = None

    def _open_tasks(self, config: Config) -> GatewayTasks | None:
        """Return the tasks of this gateway; None if the state folder cannot hold them."""
        folder = state_folder()
        if not is_writable(folder):
            self.tell(f"no call can become a task: {folder} is not writable")
            return None

        def worker() -> "TaskWorker":
            from portico.library.tasks.worker.worker import TaskWorker, WorkerSettings

            settings = config.tasks
            return TaskWorker(
                lambda: file_store(folder, config),
                WorkerSettings(lease_s=settings.lease_s, running=settings.running),
                report=self.tell,
                created=self._task_created,
                finished=lambda task: self._record_task(task, task.word),
            )

        options = self._options
        return GatewayTasks(worker, f"{options.key()}-{options.account()}")

    def _agent_tools(self, config: Config) -> Mapping[str, InProcessEntry]:
        return {} if self.agents is None else self.agents.entry(config)

    def _task_created(self, task: "TaskRecord") -> None:
        self._record_task(task, "created")
        if self.agents is not None:
            self.agents.access.created(task)

    def _record_task(self, task: "TaskRecord", state: str) -> None:
        kind = task.kind.partition("@")[0]
        self.metrics.record_task(kind, state)
        self.journal.event(f"task {task.id} ({kind}) {state}")

    @property
    def is_busy(self) -> bool:
        """True while tasks run here, or wait to, or a server is being installed."""
        return self.registry.is_installing or (self.tasks is not None and self.tasks.is_busy)

    async def wait_until_idle(self) -> None:
        """Wait until no task runs or waits here, and no server is being installed."""
        await self.registry.finish_installing()
        if self.tasks is not None and self.tasks.is_open:
            await self.tasks.host.worker.wait_until_idle()

    @property
    def endpoint(self) -> "Endpoint":
        """The main endpoint of HTTP clients: all servers, or the chosen group."""
        return self._http_endpoint(self._options.group)

    def client_endpoint(
        self, preferences: Mapping[str, Any], family: "Family | None" = None
    ) -> "tuple[Endpoint, Mapping[str, Any]]":
        """Return the main endpoint for a client's preferences, and those preferences resolved.
        The agent of a task and all below it get its own; raises PorticoError if that task does
        not run here."""
        token = preferences.get("task_token")
        if token is not None or family is not None:
            limited = None if self.agents is None else self.agents.access.of_window(token, family)
            if limited is None:
                raise PorticoError("the task of this agent does not run here any more")
            return limited, {}
        self.registry.resume_installing()
        registry = self.registry.folders.registry(folder_in(preferences))
        if server := name_in(preferences, SERVER):
            gone = f"the server {server} is disabled, or no longer in the config"
            return CurrentEndpoint(lambda: registry.server_endpoint(server), gone), {}
        return self._fit.window(preferences, partial(registry.endpoint, self._options.group))

    def _http_endpoint(self, group: str | None) -> "Endpoint":
        return self._fit.http(group or "", partial(self.registry.endpoint, group))

    def full_endpoint(self, folder: str) -> ChainEndpoint:
        """Return the main endpoint with all tools in its lists, for clients in a folder."""
        return self.registry.folders.registry(folder).endpoint(self._options.group, False)

    def _folders_in_use(self) -> list[str]:
        """Return the folders of windows and running agents, and that of the gateway for HTTP
        clients and for the only client of a gateway in a window's own process."""
        agents = () if self.agents is None else self.agents.access.folders
        windows = self.window_folders()
        home = [self._folder] if self.url or not windows else []
        return [*windows, *agents, *home]

    def find_access(self, token: str) -> "LimitedEndpoint | None":
        """Return the endpoint of a running task's agent by the task's token."""
        return None if self.agents is None else self.agents.access.find(token)

    def endpoint_at(self, path: str) -> "Endpoint | None":
        """Return the endpoint at `/servers/NAME/mcp` or `/groups/NAME/mcp`; None if unknown."""
        match path.split("/"):
            case ["", "servers", name, "mcp"]:
                return self.registry.server_endpoint(name)
            case ["", "groups", name, "mcp"] if name in self.registry.config.groups:
                return self._http_endpoint(name)
        return None

    def on_routes_changed(self, act: Callable[[], None]) -> None:
        """Call this whenever the endpoints at paths may have changed."""
        self._routes_changed.append(act)

    def start_refresh(self) -> None:
        """Refresh the catalogs of all servers in the background."""
        self.registry.start_refresh()

    def on_report(self, say: Callable[[str], None]) -> None:
        """Pass every report to this function too, beginning with the most recent ones."""
        for words in self._recent:
            say(words)
        self._listeners.append(say)

    @property
    def commands(self) -> Mapping[str, Callable[[Mapping[str, Any]], Any]]:
        """The commands of the control socket."""
        changes = dict.fromkeys(("login", "logout"), self._change_account)
        return {"status": self._status, "refresh": self._refresh, **changes}

    async def metrics_page(self) -> tuple[bytes, bytes]:
        """Return the content type and the page of metrics, rendered in a thread."""
        await asyncio.to_thread(import_module, "portico.library.observe.prometheus")
        from portico.library.observe.prometheus import CONTENT_TYPE, GatewayCollector

        self.journal.count()
        delegations = None if self.agents is None else self.agents.host.metrics
        status = self._with_tasks(self.registry.status())
        figures = GatewayCollector(self.metrics, status, delegations, self.window_clients())
        return CONTENT_TYPE, await asyncio.to_thread(figures.page)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["GatewayApp", None]:
        """Start the servers and watch the config file; on exit, close all servers."""
        registry = self.registry
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, AttributeError):
            loop.add_signal_handler(signal.SIGHUP, registry.start_refresh)
        watched, options = None, self._options
        if options.read is not None:
            watched = self._watcher = ConfigWatcher(
                registry.config.path,
                options.read,
                self._apply,
                self.tell,
                known=options.stamp,
                files=self._files,
                files_changed=self._files_changed,
            )
            watched.start()
        self.journal.event(f"process {os.getpid()} serves {registry.config.path}")
        self._warn(registry.config)
        if self._options.refresh:
            registry.start()
            registry.start_counting()
        if self.agents is not None:
            self.agents.host.start()
        continuing = loop.call_later(_CONTINUE_S, self._continue_tasks)
        try:
            with Watchdog(registry.config.gateway.watchdog_ms / 1000, self.tell):
                yield self
        finally:
            continuing.cancel()
            if watched is not None:
                await watched.close()
            if self.tasks is not None:
                await self.tasks.close(registry.config.gateway.drain)
            if self.agents is not None:
                await self.agents.close()
            await registry.close()
            self.journal.event(f"process {os.getpid()} has ended")
            self.journal.close()

    def _continue_tasks(self) -> None:
        """Look for tasks that wait since an earlier process; there are none without a store."""
        if self.tasks is not None and has_store(state_folder()):
            self.tasks.host.worker.start()

    async def _apply(self, config: Config) -> None:
        """Apply a changed config, and report the keys that need a restart."""
        before = self.registry.config
        self._warn(config)
        waits = config.waits_for_restart(before)
        if waits:
            self.tell(f"{', '.join(waits)} changed; restart to apply")
        for act in self._routes_changed:
            asyncio.get_running_loop().call_soon(act)  # before new servers have started
        local = None
        is_other = (config.gateway.links, config.linked) != (before.gateway.links, before.linked)
        if is_other or self._links_problem:
            local = await self._relink(config)
        if config.agents != before.agents:
            local = await self._change_agents(config, local)
        await self.registry.apply(config, local)

    async def _change_agents(
        self, config: Config, local: Mapping[str, InProcessEntry] | None
    ) -> Mapping[str, InProcessEntry]:
        """Use the agents of a changed config; return the members in this process."""
        others = self.registry.local if local is None else local
        kept = {name: entry for name, entry in others.items() if not entry.is_builtin}
        if self.tasks is None or not has_agents(config):
            return kept
        assert config.agents is not None
        if self.agents is None:
            self.agents = GatewayAgents(config.agents, self.tasks, state_folder(), self)
        else:
            await self.agents.apply(config.agents)
        return {**kept, **self._agent_tools(config)}

    async def _relink(self, config: Config) -> Mapping[str, InProcessEntry] | None:
        """Replace the links by those of a config, and return the members in this process.

        If that fails, the old links stay; None is returned.
        """
        options = self._options
        try:
            async with self._relinking:
                configured = await load_configured(config, options.local)
                self.registry.relink((*options.links, *configured.links))
        except Exception as error:  # noqa: BLE001  (a link may raise anything)
            words = (
                str(error)
                if isinstance(error, PorticoError)
                else f"{type(error).__name__}: {error}"
            )
            self._links_problem = words
            self.tell(f"links not reloaded; keeping the previous ones:\n{words}")
            return None
        self._links_problem = ""
        self.tell("links reloaded")
        return {**options.local, **configured.local, **self._agent_tools(config)}

    def _files(self) -> list[str]:
        """Return the files of components and links."""
        config = self.registry.config
        components = [entry for entry in config.components.values() if entry.enabled]
        return [*(file for entry in components for file in entry.files), *config.link_files]

    async def _files_changed(self, paths: frozenset[str]) -> None:
        registry = self.registry
        config = registry.config
        changed = [
            entry
            for entry in config.components.values()
            if entry.enabled and not paths.isdisjoint(entry.files)
        ]
        for entry in changed:
            if not entry.problem and entry.name not in config.linked:
                registry.start_reload(entry.name)
        if any(entry.problem for entry in changed) and self._watcher is not None:
            await self._watcher.reload()  # a file that was missing is there
        if not paths.isdisjoint(config.link_files):
            local = await self._relink(config)
            if local is not None:
                await registry.apply(registry.config, local)

    def _warn(self, config: Config) -> None:
        for warning in config.warnings:
            self.tell(warning)
        for lacking in config.unresolved:
            self.tell(f"{lacking}; until then the server is not started")

    def tell(self, words: str) -> None:
        """Report to the operator, on stderr and in the log."""
        report(words)
        self.journal.event(words)
        self._recent.append(words)
        for say in self._listeners:
            say(words)

    async def _status(self, order: Mapping[str, Any]) -> dict[str, Any]:
        registry = self.registry
        return {
            "pid": os.getpid(),
            "config": registry.config.path,
            "rejected": self._watcher.rejected if self._watcher is not None else "",
            "log": self._options.config.gateway.log or log_file(),
            "url": self.url,
            "disabled": registry.config.disabled,
            "warnings": [*registry.config.warnings, *self._links_warning(), *self._task_warnings()],
            "coroutines": len(asyncio.all_tasks()),
            "exposures": self._fit.http_choices(),
            **self._with_tasks(registry.status()),
        }

    def _with_tasks(self, status: dict[str, Any]) -> dict[str, Any]:
        running = self.tasks.running if self.tasks is not None else 0
        return {**status, "gateway": {**status["gateway"], "tasks_running": running}}

    def _task_warnings(self) -> list[str]:
        return [] if self.tasks is None else self.tasks.warnings

    def _links_warning(self) -> list[str]:
        words = self._links_problem
        return [f"links not reloaded; keeping the previous ones: {words}"] if words else []

    async def _refresh(self, order: Mapping[str, Any]) -> dict[str, Any]:
        registry = self.registry
        if self._watcher is not None:
            await self._watcher.catch_up()  # a command may have changed the config just now
        server = order.get("server")
        if server is not None and server not in list(registry.members):
            raise PorticoError(f"there is no server {server!r} here")
        await registry.refresh(list(registry.members) if server is None else [server])
        return await self._status(order)

    async def _change_account(self, order: Mapping[str, Any]) -> dict[str, Any]:
        return {"servers": await self.registry.change_account(str(order.get("place")))}


@contextlib.asynccontextmanager
async def running_gateway(options: ServeOptions) -> AsyncGenerator[GatewayApp, None]:
    """Load the links of the config, then run the gateway; raises PorticoError if a link fails."""
    configured = await load_configured(options.config, options.local)
    async with GatewayApp(options, configured).running() as app:
        yield app


def _searcher(search: Search, disk_cache: CacheFolder, tell: Callable[[str], None]) -> "Searcher":
    from portico.gateway.search.searcher import Searcher

    return Searcher.configured(search, os.path.join(disk_cache.folder, "search"), tell, disk_cache)
