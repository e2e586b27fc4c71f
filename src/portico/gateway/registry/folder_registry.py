"""The members of a gateway as the windows in one folder use them.

A server whose folder matters has a process of its own here, started by its first use. All others,
and every catalog until such a process lists otherwise, are those of the whole gateway.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from portico.core.catalog.merge import Merged
from portico.core.model.types import Change
from portico.gateway.members.member import FolderMember, Member
from portico.gateway.registry.registry import Registry

if TYPE_CHECKING:
    from portico.gateway.search.index import Hit


class FolderRegistry(Registry):
    """The members for one folder, until no window is left in it."""

    def __init__(self, shared: Registry, folder: str) -> None:
        self._shared = shared
        super().__init__(
            shared.config,
            shared._environment,
            version=shared._version,
            searcher=shared._searcher,
            report_failure=shared.report_failure,
            record_call=shared._record_call,
            links=shared._endpoints.links,
            local=shared.local,
            tasks=shared._tasks,
            folder=folder,
        )
        self.expose, self._has_many = shared.expose, shared._has_many
        self.searches, self._warned = shared.searches, shared._warned
        self.started = shared.started

    # Its members.

    def _make_members(self) -> dict[str, Member]:
        return {name: self._placed(member) for name, member in self._shared.members.items()}

    def _placed(self, shared: Member) -> Member:
        """Return the member for this folder, which may be the shared one."""
        if not shared.is_per_folder:
            return shared
        known = self.members.get(shared.name)
        if isinstance(known, FolderMember) and known.shared is shared:
            known.entry = shared.entry
            return known
        made = shared.in_folder(self.folder)
        made.provider.watch(lambda change: self._on_change(made, change))
        return made

    def _own(self) -> list[FolderMember]:
        return [member for member in self.members.values() if isinstance(member, FolderMember)]

    def follow(self) -> None:
        """Use the members that the whole gateway has now."""
        self.config, self.local = self._shared.config, self._shared.local
        before, self.members = self._own(), self._make_members()
        for member in before:
            heir = self.members.get(member.name)
            if heir is not member:
                self._retire(member, heir)
        self._changed()
        self._schedule_publish()

    def start(self) -> None:
        """List the servers here that the whole gateway could not list, or that list otherwise in
        other folders; all others start when they are used."""
        differing = [member.name for member in self._own() if member.shared.lists_differ]
        if differing:
            self._background.start(self.refresh(differing))
        self.list_missing()

    def list_missing(self) -> None:
        """List the servers here that the whole gateway could not list, if there are any."""
        missing = [one for one in self._own() if one.catalog is None]
        failed = [one.name for one in missing if one.shared.problem and not one.shared.refreshing]
        if failed:
            self._background.start(super().refresh(failed))

    async def wait_for_catalog(self, server: str) -> None:
        """Wait until a server's catalog is known, up to a timeout; the process that lists it for
        all folders may just be starting."""
        member = self.members.get(server)
        if not isinstance(member, FolderMember) or member.shared.refreshing is not None:
            await self._shared.wait_for_catalog(server)
        if isinstance(member, FolderMember):
            await super().wait_for_catalog(server)

    async def refresh(self, servers: Iterable[str]) -> None:
        """Fetch the catalogs of these servers, in this folder where it matters."""
        names, own = list(servers), {member.name for member in self._own()}
        await super().refresh([name for name in names if name in own])
        shared = [name for name in names if name not in own]
        if shared:
            await self._shared.refresh(shared)

    async def refresh_differing(self, servers: Iterable[str]) -> None:
        """Fetch the catalogs that differ from those of the whole gateway again."""
        differing = {member.name for member in self._own() if member.differs}
        await super().refresh(differing & set(servers))

    # Their offers.

    def _merged(self, before: Merged | None) -> Merged:
        for member in self._own():
            member.compare()
        known = [member.namespaced for member in self.members.values()]
        shared = self._shared.merged
        if [one for one in known if one is not None] == [*shared.namespaced_offers.values()]:
            return shared  # in memory once
        return super()._merged(before)

    def shared_changed(self, member: Member, change: Change) -> None:
        """Pass on the change of a member that is shared."""
        if self.members.get(member.name) is member:
            self._on_change(member, change)

    async def search(
        self, query: str, limit: int, server: str | None, servers: frozenset[str]
    ) -> "Sequence[Hit]":
        """Return the best tools for a query."""
        if self.merged is self._shared.merged:
            return await self._shared.search(query, limit, server, servers)
        return await super().search(query, limit, server, servers)

    def indexed_count(self) -> int | None:
        """Return the number of indexed tools; None if all are indexed."""
        if self.merged is self._shared.merged:
            return self._shared.indexed_count()
        return super().indexed_count()

    def similar_names(self, name: str, limit: int) -> list[str]:
        """Return the names of tools that are similar to a name."""
        if self.merged is self._shared.merged:
            return self._shared.similar_names(name, limit)
        return super().similar_names(name, limit)

    # Its end.

    @property
    def is_busy(self) -> bool:
        """True while calls or tasks run in this folder."""
        return any(member.provider.is_busy for member in self._own())

    def _own_members(self) -> Iterable[Member]:
        return self._own()

    def _end_installs(self) -> None:
        """Do nothing: installers in other folders continue."""
