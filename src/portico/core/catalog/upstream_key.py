"""The key of an upstream, which differs for every account."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from portico.core.model.context import LOCAL

_FORMAT = "1"
_EMPTY: Mapping[str, str] = {}


def upstream_key(
    secret: bytes,
    *,
    argv: Sequence[str] = (),
    url: str = "",
    cwd: str = "",
    env: Mapping[str, str] = _EMPTY,
    headers: Mapping[str, str] = _EMPTY,
    account: str = "",
) -> str:
    """Return a file name for an upstream and account, which reveals nothing without the secret.

    Give either argv or url. Relative paths in argv need an absolute cwd. `account` is the id of a
    login; without one, the key is that of the local user.
    """
    # Arguments and URLs may contain tokens too, so everything is hashed with the secret.
    text = _framed(
        (
            _bytes(_FORMAT),
            b"command" if argv else b"url",
            _framed(map(_bytes, argv)),
            _bytes(url),
            _bytes(cwd),
            _pairs(env.items()),
            _pairs((name.lower(), value) for name, value in headers.items()),
            _bytes(account or LOCAL),
        )
    )
    return blake2b(text, key=secret, digest_size=20, person=b"portico upstream").hexdigest()


def _pairs(items: Iterable[tuple[str, str]]) -> bytes:
    return _framed(_bytes(part) for pair in sorted(items) for part in pair)


def _framed(parts: Iterable[bytes]) -> bytes:
    """Join parts, each after its length, so that different lists give different bytes."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def _bytes(text: str) -> bytes:
    # The environment may contain bytes that are not text, which Python decodes to lone surrogates.
    return text.encode("utf-8", "surrogatepass")
