"""Images and audio that handlers return: bytes, or a file that is read immediately."""

from base64 import b64encode
from os import PathLike, fspath
from os.path import splitext
from typing import Any, ClassVar

from portico.core.model.content import Content

_IMAGES = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".gif": "gif",
    ".webp": "webp",
    ".svg": "svg+xml",
    ".bmp": "bmp",
    ".avif": "avif",
    ".heic": "heic",
    ".ico": "x-icon",
    ".tif": "tiff",
    ".tiff": "tiff",
}
_SOUNDS = {
    ".wav": "wav",
    ".mp3": "mpeg",
    ".ogg": "ogg",
    ".oga": "ogg",
    ".opus": "ogg",
    ".flac": "flac",
    ".m4a": "mp4",
    ".aac": "aac",
    ".weba": "webm",
    ".aiff": "aiff",
}


class _Media(Content):
    """Bytes and their media type."""

    suffixes: ClassVar[dict[str, str]] = {}
    usual: ClassVar[str] = ""

    data: bytes | None = None
    mime_type: str = ""
    path: str | PathLike[str] | None = None
    """The file to read instead; its suffix determines the type unless `mime_type` is given."""

    def __post_init__(self) -> None:
        if self.path is None:
            if self.data is None:
                raise TypeError(f"{self._label}: give data or path")
            given = type(self.data).__name__
            if given not in ("bytes", "bytearray", "memoryview"):
                raise TypeError(
                    f"{self._label}: data must be bytes, not {given}; for a file, give path="
                )
            self.mime_type = self.mime_type or f"{self.kind}/{self.usual}"
            return
        if self.data is not None:
            raise TypeError(f"{self._label}: give data or path, not both")
        self.mime_type = self.mime_type or self._type_of(fspath(self.path))
        # Read now: the file may be deleted by the time the handler has returned.
        with open(self.path, "rb") as file:
            self.data = file.read()

    def fields(self) -> dict[str, Any]:
        return {"data": b64encode(self.data or b"").decode(), "mimeType": self.mime_type}

    @property
    def _label(self) -> str:
        return type(self).__name__

    def _type_of(self, path: str) -> str:
        found = self.suffixes.get(splitext(path)[1].lower())
        if found is None:
            known = ", ".join(self.suffixes)
            raise ValueError(
                f"{self._label}: the suffix of {path!r} is not one of {known}; give mime_type="
            )
        return f"{self.kind}/{found}"


class Image(_Media):
    """An image: `Image(data, "image/png")`, or `Image(path="chart.png")`."""

    kind: ClassVar[str] = "image"
    suffixes: ClassVar[dict[str, str]] = _IMAGES
    usual: ClassVar[str] = "png"


class Audio(_Media):
    """A recording: `Audio(data, "audio/wav")`, or `Audio(path="speech.mp3")`."""

    kind: ClassVar[str] = "audio"
    suffixes: ClassVar[dict[str, str]] = _SOUNDS
    usual: ClassVar[str] = "wav"
