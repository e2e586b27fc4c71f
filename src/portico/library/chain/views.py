"""The views of links: applied to each catalog once, and the guard of everything that they hide."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from msgspec import DecodeError, json

from portico.core.model.context import WAITED, Context
from portico.core.model.errors import McpError, NameClash
from portico.core.model.message import Request, Response
from portico.core.model.methods import LISTS
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Handler, Link, Report
from portico.core.protocol.eras import members
from portico.library.chain.fold import (
    CATALOG_UNKNOWN,
    Bind,
    answering,
    folded,
    link_name,
    placed,
    reached,
    terminus,
)
from portico.library.chain.visible_uris import VisibleUris

if TYPE_CHECKING:
    from portico.library.chain.endpoint import ChainEndpoint

Owner = Callable[[str, str], str]
"""Returns the name of the server that offers a kind and a key."""
Place = tuple[str, str]
"""A server, and the key of an item there."""
_PROGRESS_S = 1.0
_INTRODUCTION_S, _LIST_S = 10.0, 20.0
UNLEARNED_S = {
    "ping": 0.0,
    **dict.fromkeys(("initialize", "server/discover"), _INTRODUCTION_S),
    **dict.fromkeys(("logging/setLevel", "subscriptions/listen"), _INTRODUCTION_S),
    **dict.fromkeys(LISTS, _LIST_S),
}
"""By method, how long a request waits for a view, before it is answered without: many clients
give up after 30 s, and a component may be compiled for longer."""


class ViewFailed(McpError):
    """A view raised an exception: nothing that it filters is shown or called."""


class ViewPending(ViewFailed):
    """A link does not know its view of a catalog yet: its component is reading the lists."""

    def __init__(self, name: str, learned: "asyncio.Future[None]") -> None:
        super().__init__(f"the link {name!r} has not read the lists yet; retry later")
        self.learned = learned

        self._name = name

    async def wait(self, within_s: float | None = None) -> bool:
        """Wait until the view is known, or cannot be; return False on a timeout."""
        return bool((await asyncio.wait([self.learned], timeout=within_s))[0])

    async def wait_with_progress(self, request: Request, context: Context) -> None:
        """Wait, and report progress each second."""
        bound, waited = context.bound(request, None, {}), 0.0
        while not await self.wait(_PROGRESS_S):
            waited += _PROGRESS_S
            await bound.progress(waited * WAITED, message=f"starting {self._name}")


class Learner:
    """A link whose view is known some time after it was first needed."""

    endpoints: WeakSet["ChainEndpoint"]
    """The endpoints that it is in, which are notified."""


def learners_in(links: Iterable[Any]) -> list[Learner]:
    """Return the links that learn their views, also those inside of others."""
    found: list[Learner] = []
    for link in links:
        found += [link] if isinstance(link, Learner) else learners_in(getattr(link, "links", ()))
    return found


class VisibleOffer:
    """An offer as each view returned it, and the entries that each of them hides."""

    def __init__(
        self,
        stages: Sequence[Offer],
        *,
        item_place: Callable[[str, str], Place] | None = None,
        uri_place: Callable[[str], Place] | None = None,
    ) -> None:
        """`stages` begin with the whole offer. In a gateway, `item_place` returns the place of a
        listed item of a kind, and `uri_place` the place of any URI."""
        self.offer = stages[-1]
        self.hidden = [
            HiddenEntries(before, after, item_place, uri_place)
            for before, after in pairwise(stages)
        ]
        """By the number of a view, counted from the innermost."""
        self._stages = stages

    def hides_tool(self, name: str) -> bool:
        """True if clients cannot call a tool that a link or a server has."""
        return name in self._hidden_tools

    @cached_property
    def _hidden_tools(self) -> frozenset[str]:
        names = frozenset().union(*(stage.listed("tools").keys for stage in self._stages))
        return names.difference(self.offer.listed("tools").keys)


class HiddenEntries:
    """The entries that one view hides."""

    def __init__(
        self,
        before: Offer,
        after: Offer,
        item_place: Callable[[str, str], Place] | None,
        uri_place: Callable[[str], Place] | None,
    ) -> None:
        self._before = before
        self._after = after
        self._item_place = item_place
        self._uri_place = uri_place
        self._tools = self._missing("tools")
        self._prompts = self._missing("prompts")
        self._hides_uris = bool(self._missing("resources") or self._missing("templates"))

    def _missing(self, kind: str) -> frozenset[str]:
        before, after = self._before.listed(kind).keys, self._after.listed(kind).keys
        return frozenset() if before is after else frozenset(before).difference(after)

    def tool(self, request: Request) -> bool:
        """True if the called tool is hidden."""
        return request.name in self._tools

    def prompt(self, request: Request) -> bool:
        """True if the requested prompt is hidden."""
        return request.name in self._prompts

    def resource(self, request: Request) -> bool:
        """True if the requested resource is hidden."""
        return self._hides_uris and self._hides_uri(request.uri)

    def reference(self, request: Request) -> bool:
        """True if the prompt or template of a completion is hidden."""
        reference = _reference_in(request)
        if not isinstance(reference, dict):
            return False  # malformed: the provider rejects it
        if reference.get("type") == "ref/prompt":
            return str(reference.get("name", "")) in self._prompts
        return self._hides_uris and self._hides_uri(str(reference.get("uri", "")))

    def _hides_uri(self, uri: str) -> bool:
        server, own = ("", uri) if self._uri_place is None else self._uri_place(uri)
        # Entries that a link added belong to no server, and win over the templates of servers.
        found = self._uris[""].hides(uri) if "" in self._uris else None
        if found is None and server in self._uris:
            found = self._uris[server].hides(own)
        return bool(found)

    @cached_property
    def _uris(self) -> Mapping[str, VisibleUris]:
        found: dict[str, VisibleUris] = {}
        for kind in ("resources", "templates"):
            visible = frozenset(self._after.listed(kind).keys)
            for key in (*self._after.listed(kind).keys, *self._before.listed(kind).keys):
                server, own = ("", key) if self._item_place is None else self._item_place(kind, key)
                found.setdefault(server, VisibleUris()).add(kind, [own], hidden=key not in visible)
        return found


def _reference_in(request: Request) -> object:
    """Return `ref` alone: other fields of the params may be anything."""
    try:
        reference: object = json.decode(members(request.params).get("ref", b"null"))
    except DecodeError:
        return None
    return reference


_TARGETS: dict[str, Callable[[HiddenEntries, Request], bool]] = {
    "tools/call": HiddenEntries.tool,
    "prompts/get": HiddenEntries.prompt,
    "completion/complete": HiddenEntries.reference,
    **dict.fromkeys(
        ("resources/read", "resources/subscribe", "resources/unsubscribe"), HiddenEntries.resource
    ),
}
"""By method, whether its target is hidden."""


class Views:
    """The views of a chain's links, the innermost first."""

    def __init__(self, links: Sequence[Link], report: Report, warn: Callable[[str], None]) -> None:
        """`report` logs exceptions, `warn` name clashes; each is reported once."""
        self._links: list[Any] = [link for link in reversed(links) if hasattr(link, "view")]
        self._report = report
        self._warn = warn
        self._reported: set[str] = set()

    def __len__(self) -> int:
        return len(self._links)

    def stages(self, offer: Offer, owner: Owner, *, strict: bool = False) -> list[Offer]:
        """Return the offer, and what each view made of it; raises ViewFailed.

        If a link adds a name that exists, the entry behind the link is hidden, or NameClash raised
        if `strict`.
        """
        stages = [offer]
        for link in self._links:
            stages.append(self._through(link, stages[-1], owner, strict))
        return stages

    def _through(self, link: Any, offer: Offer, owner: Owner, strict: bool) -> Offer:
        try:
            # A link made of several others has a separate view for the start.
            view = getattr(link, "strict_view", link.view) if strict else link.view
            made = view(offer)
            if not isinstance(made, Offer):
                raise TypeError(f"view returned {type(made).__name__}, not an Offer")
        except NameClash as clash:
            kind, key = clash.kind, clash.key
            words = self._clash(link, clash, owner)
            if strict:
                how = f"rename it, or add it with shadow=({key!r},)"
                raise NameClash(kind, key, f"{words}; {how}") from None
            rest = offer.keep(**{kind: lambda other: other != key})
            if rest is offer:
                raise self._failed(link, clash) from None
            if self._is_new(words):
                self._warn(f"{words}; only that of the link is visible")
            return self._through(link, rest, owner, strict)
        except ViewFailed:
            raise
        except Exception as error:  # noqa: BLE001  (a link may raise anything)
            raise self._failed(link, error) from None
        return made

    def _failed(self, link: Any, error: Exception) -> ViewFailed:
        name = repr(link_name(link))
        if self._is_new(f"{name} {error!r}"):
            self._report(Request(method=f"the view of the link {name}"), error)
        return ViewFailed(f"the link {name} failed to filter the lists; see the server's log")

    def _clash(self, link: Any, clash: NameClash, owner: Owner) -> str:
        return (
            f"{clash.kind.removesuffix('s')} {clash.key!r} is offered by both "
            f"{owner(clash.kind, clash.key)} and the link {link_name(link)!r}"
        )

    def _is_new(self, words: str) -> bool:
        """True if this was not reported yet."""
        if words in self._reported:
            return False
        self._reported.add(words)
        return True


class VisibleSource(Protocol):
    """A source of catalogs that views filter."""

    def visible(self, request: Request, context: Context) -> VisibleOffer | None:
        """Return the visible offer of this client; None until it is known. Raises ViewFailed."""
        ...

    async def ready(self, request: Request, context: Context) -> None:
        """Wait until the catalog is known; raises McpError if it cannot be fetched."""
        ...


def guarded(view: int, next: Handler, source: VisibleSource) -> Handler:
    """Wrap a link so that nothing that its view hides reaches it; the innermost view is 0."""

    def guard(request: Request, context: Context) -> Answer:
        hides = _TARGETS.get(request.method)
        if hides is None:
            return next(request, context)
        try:
            visible = source.visible(request, context)
        except ViewPending as pending:
            return learned(pending, guard, request, context)
        if visible is None:
            return later(request, context)
        return terminus(request) if hides(visible.hidden[view], request) else next(request, context)

    async def later(request: Request, context: Context) -> Response:
        await source.ready(request, context)
        if source.visible(request, context) is None:
            raise McpError(CATALOG_UNKNOWN)
        return await guard(request, context)

    return guard


def learning(source: VisibleSource, next: Handler) -> Handler:
    """Let requests wait until all views are known; introductions and lists for some time only."""
    late: WeakSet[asyncio.Future[None]] = WeakSet()
    """The views for which a list has waited in vain: a client that lists everything waits once."""

    def handle(request: Request, context: Context) -> Answer:
        try:
            source.visible(request, context)
        except ViewPending as pending:
            if pending.learned in late and request.method in LISTS:
                return next(request, context)
            if request.method in UNLEARNED_S:
                return in_time(request, context)
            return learned(pending, handle, request, context)
        except ViewFailed:
            pass  # only what needs the view fails
        return next(request, context)

    async def in_time(request: Request, context: Context) -> Response:
        learned: asyncio.Future[None] | None = None
        with suppress(TimeoutError, ViewFailed):
            async with asyncio.timeout(UNLEARNED_S[request.method]):
                while True:  # each link has its own view
                    try:
                        source.visible(request, context)
                        break
                    except ViewPending as pending:
                        learned = pending.learned
                        await pending.wait()
        if learned is not None and not learned.done() and request.method in LISTS:
            late.add(learned)
        return await next(request, context)

    return handle


async def learned(
    pending: ViewPending, next: Handler, request: Request, context: Context
) -> Response:
    """Answer a request once a view is known."""
    await pending.wait_with_progress(request, context)
    return await next(request, context)


def guarded_fold(
    links: Sequence[Link],
    innermost: Handler,
    source: VisibleSource | None,
    rounds: Bind | None = None,
) -> Handler:
    """Wrap a handler in links, the first one outermost, with a guard before each that has a view.
    Without views, no `source` is needed."""
    if not links:
        return innermost
    handler, view = answering(innermost if rounds is None else reached(innermost)), 0
    for number, link in reversed(list(enumerate(links))):
        handler = placed(folded(link, handler), str(number), link)
        if source is not None and hasattr(link, "view"):
            handler = guarded(view, handler, source)
            view += 1
    return handler if rounds is None else rounds(handler)
