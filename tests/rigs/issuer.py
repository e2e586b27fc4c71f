"""An authorization server and MCP servers behind it, in a thread, as wrong as a test wants them."""

import json
import queue
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit


class IssuerRig:
    """An authorization server that allows everybody, at /; MCP servers at /mcp, /legacy and /sse.

    Refresh tokens are replaced by every refresh; one that is used twice ends its login.
    """

    def __init__(self, life_s: float = 3600.0) -> None:
        self.life_s = life_s
        self.person = "ann"
        """Who the person at the browser is."""
        self.metadata: dict[str, Any] = {}
        """Changes to the metadata of the authorization server."""
        self.resource: dict[str, Any] = {}
        """Changes to the metadata of the MCP server."""
        self.response: dict[str, str | None] = {}
        """Changes to the response that goes through the browser."""
        self.answer: dict[str, Any] = {}
        """Changes to the answer with tokens."""
        self.is_down = False
        self.lets_in: frozenset[str] = frozenset()
        """Methods that need no login."""
        self.redirect = ""
        """Where the MCP server sends its clients, if anywhere."""
        self.repeats_token = False
        """True if the MCP server's refusals repeat the token that they refuse."""
        self.needs_write = False
        """True if calls need the scope `write`."""
        self.grants = frozenset({"read", "write"})
        """The scopes that it grants, whatever is requested."""
        self.is_never_content = False
        """True if calls are refused for the scope `write` even with it."""
        self.challenge = "read write"
        """The scopes that a refused call names."""
        self.refreshes: list[str] = []
        self.tokens_issued = 0
        self.registered: list[dict[str, Any]] = []
        self.revoked: list[str] = []
        self.calls: list[str] = []
        """The account of each call."""
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        """Every request: its method, path, headers and body."""
        self.held: threading.Event | None = None
        """If set, a refresh is answered, but the answer is sent when this is set."""
        self.holding = threading.Event()
        """Set when an answer is being held."""
        self.release_calls = threading.Event()
        self.slow_call = threading.Event()
        """Set when the tool `slow` runs, until `release_calls` is set."""
        self.lock = threading.Lock()
        self._codes: dict[str, dict[str, str]] = {}
        self._access: dict[str, tuple[str, float, str]] = {}
        self._refresh: dict[str, tuple[str, str]] = {}
        self._issued: list[str] = []
        self._streams: dict[str, queue.Queue[bytes]] = {}
        rig = self

        class Handler(_Handler):
            """Answers for this rig."""

            def handle_request(self, body: bytes) -> None:
                rig._handle(self, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.url = f"{self.origin}/mcp"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release_calls.set()
        if self.held is not None:
            self.held.set()
        self._server.shutdown()
        self._server.server_close()

    def revoke_all(self) -> None:
        """Let no token be valid any more."""
        with self.lock:
            self._access.clear()
            self._refresh.clear()

    def expire_all(self) -> None:
        """Let no access token be valid any more."""
        with self.lock:
            self._access.clear()

    def secrets(self) -> list[str]:
        """Return every token, code and secret so far."""
        found = [one for _, _, _, body in self.requests for one in _secrets_in(body)]
        return [*found, *self._issued, *self._codes]

    def _handle(self, request: "_Handler", body: bytes) -> None:
        path = urlsplit(request.path).path
        with self.lock:
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.requests.append((request.command, request.path, headers, body))
        if path in ("/mcp", "/legacy", "/sse", "/messages"):
            self._mcp(request, path, body)
        elif self.is_down:
            request.reply(503, {})
        elif path.startswith("/.well-known/oauth-protected-resource"):
            self._resource_metadata(request, path)
        elif path == "/.well-known/oauth-authorization-server":
            request.reply(200, self._metadata())
        elif path == "/authorize":
            self._authorize(request)
        elif path == "/register":
            with self.lock:
                self.registered.append(json.loads(body))
            request.reply(201, {"client_id": f"client{len(self.registered)}"})
        elif path == "/token":
            self._token(request, dict(parse_qsl(body.decode())))
        elif path == "/revoke":
            with self.lock:
                token = dict(parse_qsl(body.decode()))["token"]
                self.revoked.append(token)
                self._access.pop(token, None)
                self._refresh.pop(token, None)
            request.reply(200, {})
        else:
            request.reply(404, {})

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "revocation_endpoint": f"{self.origin}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        } | self.metadata

    def _resource_metadata(self, request: "_Handler", path: str) -> None:
        about = path.removeprefix("/.well-known/oauth-protected-resource")
        found = {"resource": self.origin + about, "authorization_servers": [self.origin]}
        request.reply(200, found | self.resource)

    def _authorize(self, request: "_Handler") -> None:
        asked = dict(parse_qsl(urlsplit(request.path).query))
        code = f"code-{secrets.token_hex(8)}"
        with self.lock:
            self._codes[code] = {**asked, "person": self.person}
        told: dict[str, str | None] = {"code": code, "state": asked["state"], **self.response}
        query = urlencode({name: value for name, value in told.items() if value is not None})
        request.reply(302, {}, location=f"{asked['redirect_uri']}?{query}")

    def _token(self, request: "_Handler", form: dict[str, str]) -> None:
        if form["grant_type"] == "authorization_code":
            asked = self._codes[form["code"]]
            digest = sha256(form["code_verifier"].encode()).digest()
            proof = urlsafe_b64encode(digest).rstrip(b"=").decode()
            if proof != asked["code_challenge"] or form["resource"] != asked["resource"]:
                request.reply(400, {"error": "invalid_grant"})
                return
            wanted = asked.get("scope", "read").split()
            person = asked["person"]
            scope = " ".join(one for one in wanted if one in self.grants)
        else:
            with self.lock:
                used = form["refresh_token"]
                self.refreshes.append(used)
                owner = self._refresh.pop(used, None)
                if owner is None:
                    request.reply(400, {"error": "invalid_grant", "error_description": "unknown"})
                    return
            person, scope = owner
        answer = self._issue(person, scope)
        if form["grant_type"] == "refresh_token" and self.held is not None:
            self.holding.set()
            self.held.wait()
        request.reply(200, answer)

    def _issue(self, person: str, scope: str) -> dict[str, Any]:
        with self.lock:
            access, refresh = (f"{kind}-{secrets.token_hex(8)}" for kind in ("access", "refresh"))
            self._access[access] = (person, time.monotonic() + self.life_s, scope)
            self._refresh[refresh] = (person, scope)
            self._issued += [access, refresh]
            self.tokens_issued += 1
        claims = json.dumps({"sub": person, "email": f"{person}@people.test"}).encode()
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.life_s,
            "refresh_token": refresh,
            "scope": scope,
            "id_token": f"e.{urlsafe_b64encode(claims).rstrip(b'=').decode()}.s",
        } | self.answer

    # The MCP servers.

    def _mcp(self, request: "_Handler", path: str, body: bytes) -> None:
        message = json.loads(body) if body else {}
        method = message.get("method", "")
        with self.lock:
            bearer = (request.headers.get("authorization") or "").removeprefix("Bearer ")
            person, until, scope = self._access.get(bearer, ("", 0.0, ""))
        is_in = person and time.monotonic() < until
        if not is_in and method not in self.lets_in:
            about = f"{self.origin}/.well-known/oauth-protected-resource{path}"
            challenge = f'Bearer resource_metadata="{about}"'
            words = {"message": f"bad token {bearer}"} if self.repeats_token else {}
            request.reply(401, words, www_authenticate=challenge)
        elif self.redirect:
            request.reply(307, {}, location=self.redirect)
        elif (
            method == "tools/call"
            and self.needs_write
            and (self.is_never_content or "write" not in scope.split())
        ):
            challenge = f'Bearer error="insufficient_scope", scope="{self.challenge}"'
            request.reply(403, {}, www_authenticate=challenge)
        elif path == "/sse":
            self._stream(request)
        elif request.command != "POST" or (path == "/legacy" and method == "server/discover"):
            request.reply(405 if request.command != "POST" else 400, {})
        elif "id" not in message:
            request.reply(202, None)
        else:
            self._answer(request, path, message, person)

    def _answer(self, request: "_Handler", path: str, message: dict[str, Any], person: str) -> None:
        method, modern = message["method"], path == "/mcp"
        result: dict[str, Any] = {"resultType": "complete"} if modern else {}
        cache = {"ttlMs": 0, "cacheScope": "private"} if modern else {}
        if method == "server/discover":
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **cache}
        elif method == "initialize":
            result |= {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            result |= {"serverInfo": {"name": "rig", "version": "1"}}
        elif method == "tools/list":
            names = ("whoami", "slow", f"of_{person or 'nobody'}")
            schema = {"type": "object"}
            result |= {"tools": [{"name": name, "inputSchema": schema} for name in names], **cache}
        elif method == "tools/call":
            with self.lock:
                self.calls.append(person)
            if message["params"]["name"] == "slow":
                self.slow_call.set()
                self.release_calls.wait()
            result |= {"content": [{"type": "text", "text": f"you are {person}"}]}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if path == "/messages":
            session = parse_qs(urlsplit(request.path).query)["session"][0]
            self._streams[session].put(
                b"event: message\ndata: %b\n\n" % json.dumps(answer).encode()
            )
            request.reply(202, None)
        else:
            request.reply(200, answer)

    def _stream(self, request: "_Handler") -> None:
        if request.command != "GET":
            request.reply(405, {})
            return
        session = secrets.token_hex(4)
        events = self._streams[session] = queue.Queue()
        events.put(f"event: endpoint\ndata: /messages?session={session}\n\n".encode())
        request.send_response(200)
        request.send_header("content-type", "text/event-stream")
        request.send_header("connection", "close")
        request.end_headers()
        while not self.release_calls.is_set():
            try:
                request.wfile.write(events.get(timeout=0.2))
                request.wfile.flush()
            except queue.Empty:
                continue


class _Handler(BaseHTTPRequestHandler):
    """Reads a request and writes one reply."""

    protocol_version = "HTTP/1.1"

    def handle_request(self, body: bytes) -> None:
        """Answer it."""
        raise NotImplementedError

    def _read(self) -> None:
        try:
            self.handle_request(self.rfile.read(int(self.headers.get("content-length") or 0)))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_DELETE = _read  # noqa: N815  (names of the base class)

    def reply(self, status: int, body: Any, **headers: str) -> None:
        """Write a whole reply."""
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _secrets_in(body: bytes) -> list[str]:
    if not body.startswith((b"grant_type=", b"token=")):
        return []
    form = dict(parse_qsl(body.decode()))
    return [form[key] for key in ("code", "code_verifier", "refresh_token") if key in form]
