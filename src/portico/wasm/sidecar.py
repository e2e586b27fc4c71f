"""The file beside a component that describes its functions: `NAME.wasm.toml`."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from portico.model.errors import PorticoError


class InvalidSidecar(PorticoError):
    """The file that describes a component's functions does not fit the component."""


class Described(Struct, forbid_unknown_fields=True):
    """The description of one function in a sidecar."""

    description: str = ""
    title: str = ""
    name: str = ""
    """The name of the tool, in place of the one made from the function's."""
    parameters: dict[str, str] = {}
    """Descriptions, by the names of parameters."""


class Sidecar(Struct, forbid_unknown_fields=True):
    """The descriptions of a component's functions."""

    functions: dict[str, Described] = {}
    """By FUNCTION or INTERFACE/FUNCTION."""


def read_sidecar(component: Path) -> Sidecar:
    """Return the content of `NAME.wasm.toml`, empty without one; raises InvalidSidecar."""
    path = component.with_name(f"{component.name}.toml")
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return Sidecar()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSidecar(f"cannot read {path.name}: {error}") from None
    try:
        return msgspec.convert(tomllib.loads(text), Sidecar)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSidecar(f"{path.name} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        how = "each function has a description, title, name and parameters"
        raise InvalidSidecar(f"{path.name} does not describe functions: {error}; {how}") from None


class Descriptions:
    """A sidecar's descriptions, each of which must be of a function that exists."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._functions = sidecar.functions
        self._used: set[str] = set()

    def of(self, keys: Iterable[str], parameters: Iterable[str]) -> Described:
        """Return the description under the first of the keys; raises InvalidSidecar."""
        for key in keys:
            if key in self._functions:
                self._used.add(key)
                return _checked(key, self._functions[key], list(parameters))
        return Described()

    def check_all_used(self, known: Mapping[str, object]) -> None:
        """Raise InvalidSidecar if a description is of no function; `known` are their names."""
        unknown = [key for key in self._functions if key not in self._used]
        if unknown:
            what = f"the sidecar describes {unknown[0]!r}, which the component does not offer"
            raise InvalidSidecar(f"{what}; its functions are {', '.join(known) or 'none'}")


def _checked(key: str, described: Described, parameters: list[str]) -> Described:
    for name in described.parameters:
        if name not in parameters:
            what = (
                f"the sidecar describes the parameter {name!r} of {key!r}, which it does not have"
            )
            raise InvalidSidecar(f"{what}; it has {', '.join(parameters) or 'none'}")
    return described
