"""Pictures and sounds from bytes and from files."""

import base64
from pathlib import Path
from typing import Any

import pytest

from portico import Audio, Image, Server
from tests.support.messages import call


@pytest.mark.parametrize(
    ("kind", "name", "mime"),
    [
        (Image, "a.png", "image/png"),
        (Image, "a.b.JPG", "image/jpeg"),
        (Image, "a.svg", "image/svg+xml"),
        (Audio, "a.mp3", "audio/mpeg"),
        (Audio, "a.wav", "audio/wav"),
    ],
)
async def test_a_file_is_read_when_it_is_named(
    kind: type[Any], name: str, mime: str, tmp_path: Path
) -> None:
    server = Server("t")

    @server.tool
    def draw() -> Any:
        """Return a file that is deleted before the result is encoded."""
        path = tmp_path / name
        path.write_bytes(b"bytes")
        made = kind(path=path)
        path.unlink()
        return made

    (block,) = (await call(server, "draw", {}))["content"]
    encoded = base64.b64encode(b"bytes").decode()
    assert block == {"type": mime.partition("/")[0], "data": encoded, "mimeType": mime}


def test_a_media_type_that_is_given_counts(tmp_path: Path) -> None:
    path = tmp_path / "plot"
    path.write_bytes(b"x")

    assert Image(path=str(path), mime_type="image/x-own").mime_type == "image/x-own"


def test_bytes_are_taken_as_before() -> None:
    assert Image(b"x").block()["mimeType"] == "image/png"
    assert Audio(b"x", "audio/ogg", meta={"a": 1}).block()["_meta"] == {"a": 1}


@pytest.mark.parametrize("name", ["plot", "plot.mp3", "plot.", ".png"])
def test_a_suffix_that_is_not_a_pictures_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")

    with pytest.raises(ValueError, match=r"Image: the suffix of .* give mime_type="):
        Image(path=tmp_path / name)


def test_other_mistakes_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.png"):
        Image(path=tmp_path / "no.png")
    with pytest.raises(TypeError, match="give data or path, not both"):
        Image(b"x", path="a.png")
    with pytest.raises(TypeError, match="Audio: give data or path"):
        Audio()
    with pytest.raises(TypeError, match="data must be bytes, not str; for a file, give path="):
        Image("a.png")  # type: ignore[arg-type]
