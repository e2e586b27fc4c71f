"""A registry of our own, which can lie, die and redirect; and components in it."""

import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from portico.library.distribution.manifest import (
    TITLE,
    WASM_TYPE,
    Descriptor,
    digest_of,
    new_config,
    new_manifest,
    written_manifest,
)
from portico.library.distribution.manifest import Manifest as OciManifest
from portico.library.distribution.signature import (
    ANNOTATION,
    PAYLOAD_TYPE,
    payload_for,
    signature_tag,
    signed,
)
from tests.library.distribution.rigs import WAIT_S, WASM

_BLOB = re.compile(r"/v2/(.+)/blobs/(sha256:[0-9a-f]{64})")
_MANIFEST = re.compile(r"/v2/(.+)/manifests/([^/]+)")
_UPLOADS = re.compile(r"/v2/(.+)/blobs/uploads/(\w*)")
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"


class Answer:
    """One answer; `cut` closes the connection after so many bytes, once `hold` is set."""

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        cut: int | None = None,
        hold: threading.Event | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = dict(headers or {})
        self.cut = cut
        self.hold = hold


Hook = Callable[["Seen"], Answer | None]


class Seen:
    """One request."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def text(self) -> str:
        """All of it, to look for canaries."""
        return f"{self.method} {self.path} {self.headers} {self.body!r}"


class OwnRegistry:
    """The content of a registry, and what was requested."""

    def __init__(self) -> None:
        self.host = ""
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.uploads: dict[str, bytearray] = {}
        self.seen: list[Seen] = []
        self.hook: Hook = lambda seen: None
        """Answers in place of the registry, for a fault."""
        self.has_ranges = True
        self.cut_uploads = 0
        """How many parts of uploads end the connection in their middle."""

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def requests(self, method: str, part: str = "") -> list[Seen]:
        """Return the requests of a method whose path has this part."""
        return [one for one in self.seen if one.method == method and part in one.path]

    def add(
        self, name: str, tag: str, layer: bytes, size: int | None = None, title: str = ""
    ) -> str:
        """Store a component; return its digest. `size` is the one that the manifest states."""
        stated = len(layer) if size is None else size
        notes = {TITLE: title} if title else {}
        about = Descriptor(WASM_TYPE, digest_of(layer), stated, notes)
        config = new_config(about.digest, "1970-01-01T00:00:00Z", {})
        self.blobs |= {about.digest: layer, digest_of(config): config}
        return self.add_manifest(name, tag, new_manifest(config, about, {}))

    def add_manifest(self, name: str, tag: str, data: bytes) -> str:
        """Store a manifest under its tag and its digest."""
        digest = digest_of(data)
        self.manifests[name, tag] = self.manifests[name, digest] = data
        return digest

    def sign(self, name: str, digest: str, key: Any, **other: str) -> None:
        """Sign a digest; `other` claims another repository or digest."""
        repository = other.get("repository", f"{self.host}/{name}")
        payload = payload_for(repository, other.get("for_digest", digest), "2026-01-01T00:00:00Z")
        layer = Descriptor(
            PAYLOAD_TYPE, digest_of(payload), len(payload), {ANNOTATION: signed(key, payload)}
        )
        config = Descriptor(IMAGE_CONFIG, digest_of(b"{}"), 2)
        self.blobs |= {layer.digest: payload, config.digest: b"{}"}
        data = written_manifest(OciManifest(config, (layer,)))
        self.manifests[name, signature_tag(digest)] = data

    def answer(self, seen: Seen) -> Answer:
        """Answer a request as a registry does."""
        if (special := self.hook(seen)) is not None:
            return special
        path = urlsplit(seen.path).path
        if found := _UPLOADS.fullmatch(path):
            return self._upload(seen, found[1], found[2])
        if found := _BLOB.fullmatch(path):
            return self._blob(seen, found[2])
        if found := _MANIFEST.fullmatch(path):
            return self._manifest(seen, found[1], found[2])
        return Answer(404)

    def _manifest(self, seen: Seen, name: str, selector: str) -> Answer:
        if seen.method == "PUT":
            self.manifests[name, selector] = seen.body
            return Answer(201, headers={"Location": seen.path})
        data = self.manifests.get((name, selector))
        return Answer(404) if data is None else Answer(200, data)

    def _blob(self, seen: Seen, digest: str) -> Answer:
        data = self.blobs.get(digest)
        if data is None:
            return Answer(404)
        if seen.method == "HEAD":
            return Answer(200, headers={"X-Length": str(len(data))})
        part = re.fullmatch(r"bytes=(\d+)-", seen.headers.get("range", ""))
        if part is None or not self.has_ranges:
            return Answer(200, data)
        start = int(part[1])
        about = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        return Answer(206, data[start:], about) if start < len(data) else Answer(416)

    def _upload(self, seen: Seen, name: str, number: str) -> Answer:
        if not number:
            number = f"u{len(self.uploads)}"
            self.uploads[number] = bytearray()
            return Answer(202, headers={"Location": f"/v2/{name}/blobs/uploads/{number}?state=x"})
        data = self.uploads.get(number)
        if data is None:
            return Answer(404)
        here = {"Location": f"/v2/{name}/blobs/uploads/{number}?state={len(data)}"}
        if seen.method == "GET":
            return Answer(204, headers={**here, "Range": f"0-{max(0, len(data) - 1)}"})
        if seen.method == "PATCH":
            start = int(seen.headers["content-range"].partition("-")[0])
            if start != len(data):
                return Answer(416)
            if self.cut_uploads:
                self.cut_uploads -= 1
                data += seen.body[: len(seen.body) // 2]
                return Answer(202, headers=here, cut=0)
            data += seen.body
            return Answer(202, headers=here)
        data += seen.body
        digest = parse_qs(urlsplit(seen.path).query)["digest"][0]
        if digest_of(bytes(data)) != digest:
            return Answer(400, b'{"errors":[{"code":"DIGEST_INVALID","message":"another digest"}]}')
        self.blobs[digest] = bytes(data)
        del self.uploads[number]
        return Answer(201, headers={"Location": f"/v2/{name}/blobs/{digest}"})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: OwnRegistry

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError):
            self.close_connection = True

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        seen = Seen(self.command, self.path, dict(self.headers.items()), self.rfile.read(length))
        self.registry.seen.append(seen)
        answer = self.registry.answer(seen)
        if answer.cut == 0:
            self.close_connection = True
            return
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(answer.body)), **answer.headers}
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body if answer.cut is None else answer.body[: answer.cut])
        if answer.hold is not None:
            self.wfile.flush()
            assert answer.hold.wait(WAIT_S)
        self.close_connection = self.close_connection or answer.cut is not None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # every method
            return self._any
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def own_registry(tls: ssl.SSLContext | None = None) -> Iterator[OwnRegistry]:
    """A registry of ours on this machine."""
    made = OwnRegistry()
    handler = type("_OneHandler", (_Handler,), {"registry": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    made.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def layer_of(size: int, seed: bytes = b"a") -> bytes:
    """Return bytes that begin like a component."""
    return WASM + (seed * size)[: size - len(WASM)]
