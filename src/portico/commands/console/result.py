"""Prints a tool's result."""

import mimetypes
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from portico.commands.console.render import Screen, size
from portico.core.model.errors import PorticoError


class CannotSave(PorticoError):
    """A file of the result could not be written."""


def show_result(result: dict[str, Any], screen: Screen, save: Path | None = None) -> None:
    """Print text as it is, data indented, and one line about anything else."""
    failed = result.get("isError") is True
    content = result.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    structured = result.get("structuredContent")
    if structured is not None:
        text_data = _text_as_data(blocks)
        if text_data is not None and text_data == structured:
            blocks = [block for block in blocks if block.get("type") != "text"]
        elif text_data is not None and structured == {"result": text_data}:
            structured = None  # it only wraps the text in an object
    for number, block in enumerate(blocks, 1):
        _show(block, screen, partial(_save_file, save, number), "red" if failed else "")
    if structured is not None:
        screen.data(structured)
    elif not blocks:
        extra = {key: value for key, value in result.items() if key != "content"}
        screen.data(extra) if extra else screen.print("(nothing)", "dim")


def _text_as_data(blocks: list[dict[str, Any]]) -> Any:
    """The only text block, decoded: most servers repeat structured data there for old clients."""
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    if len(texts) != 1 or not isinstance(texts[0], str):
        return None
    try:
        return msgspec.json.decode(texts[0])
    except (msgspec.DecodeError, RecursionError):
        return texts[0]


def _save_file(folder: Path | None, number: int, data: bytes, mime: str) -> str:
    """Write a block's file to the folder, if one is given; return the note to print."""
    if folder is None:
        return ""
    suffix = mimetypes.guess_extension(mime) or ".bin"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path, copy = folder / f"result-{number}{suffix}", 1
        while path.exists():  # existing files are not overwritten
            copy += 1
            path = folder / f"result-{number}-{copy}{suffix}"
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise CannotSave(f"cannot write to {folder}: {error.strerror}") from None
    return f", saved as {path}"


_SaveFile = Callable[[bytes, str], str]


def _show(block: dict[str, Any], screen: Screen, save: _SaveFile, style: str) -> None:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        screen.print(block["text"], style)
    elif kind in ("image", "audio"):
        screen.print(_file(kind, block.get("data"), block.get("mimeType"), save), "cyan")
    elif kind == "resource_link":
        screen.print(_link(block), "cyan")
    elif kind == "resource" and isinstance(block.get("resource"), dict):
        _embedded(block["resource"], screen, save)
    else:
        screen.data(block)


def _file(what: str, data: Any, mime: Any, save: _SaveFile) -> str:
    kind = mime if isinstance(mime, str) else "of unknown type"
    try:
        raw = b64decode(data, validate=True) if isinstance(data, str) else b""
    except (Base64Error, ValueError):
        return f"[{what} {kind}, which is not valid Base64]"
    return f"[{what} {kind}, {size(len(raw))}{save(raw, kind)}]"


def _link(block: dict[str, Any]) -> str:
    shown = [block.get(key) for key in ("title", "name")]
    name = next((text for text in shown if isinstance(text, str)), "")
    mime = f" ({block['mimeType']})" if isinstance(block.get("mimeType"), str) else ""
    about = f": {block['description']}" if isinstance(block.get("description"), str) else ""
    return f"[link {name} <{block.get('uri')}>{mime}{about}]"


def _embedded(resource: dict[str, Any], screen: Screen, save: _SaveFile) -> None:
    uri, mime = resource.get("uri"), resource.get("mimeType")
    if isinstance(resource.get("text"), str):
        screen.print(f"[resource {uri}{f' ({mime})' if isinstance(mime, str) else ''}]", "cyan")
        screen.print(resource["text"])
    else:
        screen.print(_file(f"resource {uri}", resource.get("blob"), mime, save), "cyan")
