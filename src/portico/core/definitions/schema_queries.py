"""Yes-or-no queries about parts of a schema, within a time limit."""

from collections.abc import Iterable, Iterator
from time import thread_time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urljoin

from jsonschema_rs import Registry

from portico.core.definitions.definition_error import SchemaError
from portico.core.definitions.keywords import DRAFT_4, Location
from portico.core.definitions.schema import compiled

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_MAX_PARTS = 1000
_MAX_SECONDS = 0.015
"""The last query may take about as long again."""
T = TypeVar("T")
_ADDRESS = "http://portico.invalid/schema"


class SchemaQueries:
    """Queries to the validator; after the time limit, every result is False."""

    def __init__(self, root: Any, dialect: str, started: float | None) -> None:
        self._dialect = dialect
        own = root.get("$id") if isinstance(root, dict) else None
        self._address = urljoin(_ADDRESS, own.partition("#")[0] if isinstance(own, str) else "")
        self._registry = Registry([(self._address, root)])
        self._validators: dict[tuple[Any, ...], Validator | None] = {}
        # CPU time, so that a busy machine does not change the result.
        self._until = (thread_time() if started is None else started) + _MAX_SECONDS

    def is_exhausted(self) -> bool:
        """True if the time limit has passed."""
        return thread_time() > self._until or len(self._validators) > _MAX_PARTS

    def while_in_time(self, things: Iterable[T]) -> Iterator[T]:
        """Yield these things until the time limit."""
        for thing in things:
            if thread_time() > self._until or len(self._validators) > _MAX_PARTS:
                return
            yield thing

    def fails(self, location: Location, value: Any) -> bool:
        """True if the value does not match the schema at this location."""
        part: dict[str, Any] = {}
        if location not in self._validators:
            escaped = (str(step).replace("~", "~0").replace("/", "~1") for step in location)
            pointer = quote("".join(f"/{step}" for step in escaped), safe="~/")
            part = {"$ref": f"{self._address}#{pointer}"}
        return self._fails(location, part, value, registry=self._registry)

    def breaks(self, schema: dict[str, Any], keyword: str, value: Any) -> bool:
        """True if the value violates this keyword, which contains no schemas."""
        part = {keyword: schema[keyword]}
        exclusive = "exclusive" + keyword.capitalize()
        if self._dialect == DRAFT_4 and exclusive in schema:
            part[exclusive] = schema[exclusive]  # in draft 4 it is a flag of the keyword
        key = tuple((name, id(limit)) for name, limit in part.items())
        return self._fails(key, part, value)

    def _fails(
        self, key: tuple[Any, ...], part: dict[str, Any], value: Any, **options: Any
    ) -> bool:
        if self.is_exhausted():
            return False
        try:
            if key not in self._validators:
                self._validators[key] = None
                self._validators[key] = compiled({"$schema": self._dialect, **part}, **options)
            validator = self._validators[key]
            if validator is None or thread_time() > self._until:
                return False
            return not validator.is_valid(value)
        except (SchemaError, ValueError):
            # The part cannot be compiled alone, or the value is not JSON.
            return False
