"""Yes-or-no questions about parts of a schema, as many as there is time for."""

from collections.abc import Iterable, Iterator
from time import thread_time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urljoin

from jsonschema_rs import Registry

from portico.definitions.errors import SchemaError
from portico.definitions.keywords import DRAFT_4, Location, dialect
from portico.definitions.schema import compiled

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_MOST_PARTS = 1000
_MOST_SECONDS = 0.015
"""A last question may take about as long again."""
T = TypeVar("T")
_ADDRESS = "http://portico.invalid/schema"


class Questions:
    """Asks the validator; when the time is up, every answer is no."""

    def __init__(self, root: Any, started: float | None) -> None:
        self._dialect = dialect(root)
        own = root.get("$id") if isinstance(root, dict) else None
        self._address = urljoin(_ADDRESS, own.partition("#")[0] if isinstance(own, str) else "")
        self._registry = Registry([(self._address, root)])
        self._validators: dict[tuple[Any, ...], Validator | None] = {}
        # CPU time, so that a busy machine does not change the answer.
        self._until = (thread_time() if started is None else started) + _MOST_SECONDS

    def exhausted(self) -> bool:
        """True when there is no time for another question."""
        return thread_time() > self._until or len(self._validators) > _MOST_PARTS

    def while_there_is_time(self, things: Iterable[T]) -> Iterator[T]:
        """These things, as long as there is time for another question."""
        for thing in things:
            if self.exhausted():
                return
            yield thing

    def fails(self, location: Location, value: Any) -> bool:
        """Does the value fail the schema at this location?"""
        if location not in self._validators and not self.exhausted():
            parts = (str(part).replace("~", "~0").replace("/", "~1") for part in location)
            pointer = "".join(f"/{quote(part, safe='~')}" for part in parts)
            part = {"$ref": f"{self._address}#{pointer}"}
            self._validators[location] = self._compiled(part, registry=self._registry)
        return self._ask(location, value)

    def breaks(self, schema: dict[str, Any], keyword: str, value: Any) -> bool:
        """Does the value break this one keyword, which holds no schemas?"""
        part = {keyword: schema[keyword]}
        exclusive = "exclusive" + keyword.capitalize()
        if self._dialect == DRAFT_4 and exclusive in schema:
            part[exclusive] = schema[exclusive]  # where it is a flag that changes the keyword
        key = tuple((name, id(asked)) for name, asked in part.items())
        if key not in self._validators and not self.exhausted():
            self._validators[key] = self._compiled(part)
        return self._ask(key, value)

    def _ask(self, key: tuple[Any, ...], value: Any) -> bool:
        validator = self._validators.get(key)
        if validator is None or self.exhausted():
            return False
        try:
            return not validator.is_valid(value)
        except ValueError:  # not JSON, and then there is nothing to say of it
            return False

    def _compiled(self, part: dict[str, Any], **options: Any) -> "Validator | None":
        try:
            return compiled({"$schema": self._dialect, **part}, **options)
        except SchemaError:  # a part that cannot stand alone
            return None
