"""Credentials for registries, from Docker's config file and its credential helpers."""

import asyncio
import base64
import binascii
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct, field

from portico.core.state import files
from portico.library.distribution.distribution_error import DistributionError

HELPER_S = 20.0
_MAX_CONFIG = 1024 * 1024
_MAX_ANSWER = 64 * 1024
_DRAIN_S = 2.0
_HELPER = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_IDENTITY = "<token>"
"""The user name of an identity token."""
_NOT_FOUND = b"credentials not found"


class RegistryLogin(Struct, frozen=True):
    """A user's credentials for one registry."""

    user: str = ""
    password: str = ""
    identity_token: str = ""
    """A refresh token for the token service, in place of a password."""

    @property
    def basic(self) -> str:
        """The value of a Basic Authorization header."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def __bool__(self) -> bool:
        return bool(self.user or self.identity_token)

    def __repr__(self) -> str:
        return "RegistryLogin(...)"


NO_LOGIN = RegistryLogin()


class _Entry(Struct):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _DockerConfig(Struct):
    auths: dict[str, _Entry] = field(default_factory=dict)
    helpers: dict[str, str] = field(name="credHelpers", default_factory=dict)
    store: str = field(name="credsStore", default="")


class _Answer(Struct):
    user: str = field(name="Username", default="")
    secret: str = field(name="Secret", default="")


def docker_config_file(environ: Mapping[str, str]) -> str:
    """Return the path of Docker's config file."""
    folder = environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    return os.path.join(folder, "config.json")


async def login_for(host: str, environ: Mapping[str, str]) -> RegistryLogin:
    """Return the user's credentials for a registry, empty if there are none; raises
    DistributionError."""
    path = docker_config_file(environ)
    config = _read(path)
    helper = config.helpers.get(host, "") or config.store
    if helper:
        found = await _ask(helper, host, environ, path)
        if found:
            return found
    for key, entry in config.auths.items():
        if _host_of(key) == host:
            return _login_of(entry, host, path)
    return NO_LOGIN


def _read(path: str) -> _DockerConfig:
    try:
        data, _ = files.read(path, _MAX_CONFIG, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return _DockerConfig()
    except OSError as error:
        raise DistributionError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=_DockerConfig)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Without the error's text, which may show a part of a secret.
        raise DistributionError(f"{path}: not a Docker config; correct or remove it") from None


def _host_of(key: str) -> str:
    """Return host and port of a key, which may be a URL."""
    return key.rpartition("://")[2].partition("/")[0].lower()


def _login_of(entry: _Entry, host: str, path: str) -> RegistryLogin:
    if entry.identitytoken:
        return RegistryLogin(identity_token=entry.identitytoken)
    if not entry.auth:
        return RegistryLogin(entry.username, entry.password)
    try:
        pair = base64.b64decode(entry.auth, validate=True).decode()
    except (binascii.Error, ValueError):
        pair = ""
    user, colon, password = pair.partition(":")
    if not colon:
        what = f"{path}: the credentials for {host} cannot be read"
        raise DistributionError(f"{what}; log in again with your registry's tool")
    return RegistryLogin(user, password)


async def _ask(helper: str, host: str, environ: Mapping[str, str], path: str) -> RegistryLogin:
    """Ask a credential helper, without a shell and bounded in time."""
    if not _HELPER.fullmatch(helper):
        raise DistributionError(f"{path}: {helper[:80]!r} is not the name of a credential helper")
    program = f"docker-credential-{helper}"
    found = shutil.which(program, path=environ.get("PATH"))
    if found is None:
        raise DistributionError(f"{program} is not installed, but {path} names it")
    try:
        async with asyncio.timeout(HELPER_S):
            code, out = await _run(found, host, environ)
    except TimeoutError:
        raise DistributionError(f"{program} did not answer within {HELPER_S:g} s") from None
    except OSError as error:
        raise DistributionError(f"{program} cannot be started: {error.strerror}") from None
    if code != 0:
        if _NOT_FOUND in out:
            return NO_LOGIN
        raise DistributionError(
            f"{program} failed with exit code {code}; run it by hand to see why"
        )
    try:
        answer = msgspec.json.decode(out, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise DistributionError(f"{program} sent no credentials that can be read") from None
    if answer.user == _IDENTITY:
        return RegistryLogin(identity_token=answer.secret)
    return RegistryLogin(answer.user, answer.secret)


async def _run(program: str, host: str, environ: Mapping[str, str]) -> tuple[int, bytes]:
    child = await asyncio.create_subprocess_exec(
        program,
        "get",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(environ),
        start_new_session=True,
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            child.stdin.write(host.encode() + b"\n")
            await child.stdin.drain()
        child.stdin.close()
        out = b""
        while (piece := await child.stdout.read(4096)) and len(out) < _MAX_ANSWER:
            out += piece
        if len(out) >= _MAX_ANSWER:
            raise DistributionError(f"{os.path.basename(program)} sent too much")
        return await child.wait(), out
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, 9)  # also what it started
        # A pipe that is full is not read to its end, for which `wait` waits.
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while child.stdout is not None and await child.stdout.read(65536):
                    pass
        await child.wait()
