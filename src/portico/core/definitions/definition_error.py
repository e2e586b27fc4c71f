"""The errors of definitions and schemas."""

from typing import Self

from portico.core.model.errors import RegistrationError


class DefinitionError(RegistrationError):
    """A definition that cannot be used: the file (or function), the entry, the field and why."""

    def __init__(self, reason: str, *, source: str = "", entry: str = "", field: str = "") -> None:
        super().__init__(": ".join(part for part in (source, entry, field, reason) if part))
        self.source = source
        self.entry = entry
        self.field = field
        self.reason = reason

    def inside(self, *, source: str = "", entry: str = "", field: str = "") -> Self:
        """Return the same error with the position of the checked value in its document."""
        joint = "" if not field or not self.field or self.field.startswith("[") else "."
        return type(self)(
            self.reason,
            source=source or self.source,
            entry=entry or self.entry,
            field=f"{field}{joint}{self.field}",
        )


class SchemaError(DefinitionError):
    """A JSON Schema that is invalid, refers to other documents, or is too large."""
