"""The resources that a view shows and hides, found by any spelling of their URIs."""

from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from portico.core.catalog.uris import UriPattern, canonical, canonical_template, uri_pattern


class VisibleUris:
    """The URIs and templates of one server, with the ones that a view hides."""

    def __init__(self) -> None:
        self._uris: dict[str, bool] = {}
        """By canonical URI, True if it is hidden."""
        self._templates: dict[str, tuple[str, bool]] = {}
        """By canonical template, its text, and True if it is hidden."""

    def add(self, kind: str, keys: Iterable[str], *, hidden: bool) -> None:
        """Add keys of `resources` or `templates`; a key that is added twice stays as it was."""
        for key in keys:
            if kind == "resources":
                self._uris.setdefault(canonical(key), hidden)
            else:
                self._templates.setdefault(canonical_template(key), (key, hidden))

    def hides(self, uri: str) -> bool | None:
        """True if this URI or template is hidden, None if it is not known here."""
        same = canonical(uri)
        if same in self._uris:
            return self._uris[same]
        template = self._templates.get(canonical_template(uri))
        if template is not None:
            return template[1]
        for pattern in self._patterns:
            if pattern.may_match(same) and pattern.matches(same):
                return self._templates[canonical_template(pattern.text)][1]
        return None

    @cached_property
    def _patterns(self) -> list[UriPattern]:
        """The templates that can be matched, the most literal first."""
        found = [uri_pattern(text) for text, _ in self._templates.values()]
        known = [pattern for pattern in found if pattern is not None]
        return sorted(known, key=attrgetter("rank"), reverse=True)
