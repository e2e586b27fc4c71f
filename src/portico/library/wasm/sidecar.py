"""The file that describes a component's functions: `NAME.wasm.toml`, beside it or its config.

It may come from the author of the component, so it is bounded before it is parsed.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from portico.core.model.errors import PorticoError
from portico.core.state import files

ENDING = ".toml"
"""Added to the name of the component's file."""
_MAX_SIZE, _MAX_DOTS = 256 * 1024, 500
"""The time that a key takes to parse grows with the square of its dots."""


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


def read_sidecar(path: str) -> Sidecar:
    """Return what a file describes, nothing if it does not exist; raises InvalidSidecar."""
    return parse_sidecar(sidecar_text(path), os.path.basename(path))


def sidecar_text(path: str) -> str:
    """Return the text of a file, empty if it does not exist; raises InvalidSidecar."""
    name = os.path.basename(path)
    try:
        return files.read(path, _MAX_SIZE, follow=True)[0].decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InvalidSidecar(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSidecar(f"cannot read {name}: it is not UTF-8") from None


def parse_sidecar(text: str, name: str) -> Sidecar:
    """Return what the text of the file of this name describes; raises InvalidSidecar."""
    if any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
        raise InvalidSidecar(f"{name} has a line with more than {_MAX_DOTS} dots; shorten it")
    try:
        return msgspec.convert(tomllib.loads(text), Sidecar)
    except msgspec.ValidationError as error:
        how = "each function has a description, title, name and parameters"
        raise InvalidSidecar(f"{name} does not describe functions: {error}; {how}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidSidecar(f"{name} is not TOML: {error}") from None


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
