"""Yes-or-no questions about parts of a schema, as many as there is time for."""

from time import thread_time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from jsonschema_rs import Registry

from portico.definitions.errors import SchemaError
from portico.definitions.keywords import DRAFT_4, Location, dialect
from portico.definitions.schema import compiled

if TYPE_CHECKING:
    from jsonschema_rs import Validator

_MOST_PARTS = 1000
_MOST_SECONDS = 0.25
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

    @property
    def exhausted(self) -> bool:
        """True when there is no time for another question."""
        return thread_time() > self._until or len(self._validators) > _MOST_PARTS

    def fails(self, location: Location, value: Any) -> bool:
        """Does the value fail the schema at this location?"""
        pointer = "".join(f"/{_escaped(part)}" for part in location)
        part = {"$ref": f"{self._address}#{pointer}"}
        return self._ask(("at", *location), part, value, registry=self._registry)

    def breaks(self, schema: dict[str, Any], keyword: str, value: Any) -> bool:
        """Does the value break this one keyword, which holds no schemas?"""
        part = {keyword: schema[keyword]}
        exclusive = "exclusive" + keyword.capitalize()
        if self._dialect == DRAFT_4 and exclusive in schema:
            part[exclusive] = schema[exclusive]  # where it is a flag that changes the keyword
        return self._ask(tuple((name, id(asked)) for name, asked in part.items()), part, value)

    def _ask(self, key: tuple[Any, ...], part: dict[str, Any], value: Any, **options: Any) -> bool:
        if self.exhausted:
            return False
        if key not in self._validators:
            try:
                whole = {"$schema": self._dialect, **part}
                self._validators[key] = compiled(whole, **options)
            except SchemaError:  # a part that cannot stand alone
                self._validators[key] = None
        validator = self._validators[key]
        return validator is not None and not validator.is_valid(value)


def _escaped(part: str | int) -> str:
    return quote(str(part).replace("~", "~0").replace("/", "~1"), safe="~")
