"""A login: the tokens of one account at one server, and the facts of it that are not secret."""

import hashlib
from collections.abc import Sequence
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.token_request import TokenEndpoint, Tokens
from portico.upstream.auth.web_url import canonical

MAX_LEAD_S = 60.0
WARN_S = 3 * 86400
"""How long before the end of a login people are warned."""
BEARER = "authorization"
_MACHINE = "machine-"


class LoginPlace(Struct, frozen=True):
    """The purpose of a login: an entry of the config, or a URL without a name."""

    url: str
    name: str = ""

    @property
    def key(self) -> str:
        """The name of its files; it reveals neither the URL nor the name."""
        text = f"{self.name}\0{self._plain_url}"
        return hashlib.blake2b(text.encode(), digest_size=16, person=b"portico login").hexdigest()

    @property
    def shown(self) -> str:
        """The word after `portico servers login`."""
        return self.name or self._plain_url

    @property
    def _plain_url(self) -> str:
        """Without the query, which may hold a secret and is not shown."""
        return canonical(self.url).partition("?")[0]


def machine_id(place: LoginPlace, client: str) -> str:
    """Return the id of a machine's account, which is known before it has logged in."""
    text = f"{place.key}\0{client}".encode()
    return _MACHINE + hashlib.blake2b(text, digest_size=12).hexdigest()


def is_machine(id: str) -> bool:
    """True for the id of a machine's account."""
    return id.startswith(_MACHINE)


def login_command(place: LoginPlace, scopes: Sequence[str] = ()) -> str:
    """Return the command with which a person logs in."""
    # Scopes and URLs are the server's: pasted into a shell, they must stay words.
    more = "".join(f" --scope {quote(scope)}" for scope in scopes)
    return f"portico servers login {quote(place.shown)}{more}"


class LoginFacts(Struct, frozen=True, kw_only=True):
    """The part of a login that status shows."""

    id: str
    """Its own id, which distinguishes accounts; never a token."""
    place: str
    """The server's name, or its URL without the query."""
    issuer: str = ""
    account: str = ""
    scopes: tuple[str, ...] = ()
    expires: float = 0.0
    """When the access token expires; 0 if unknown."""
    ends: float = 0.0
    """When a person must log in again; 0 if unknown."""
    refreshes: bool = False
    ended: str = ""
    """Why it cannot be used any more; empty if it can."""


class Login(Struct, frozen=True, kw_only=True):
    """A whole login; only its facts are stored unencrypted."""

    facts: LoginFacts
    url: str
    """The server that its tokens are for."""
    access: str
    header: str = BEARER
    """The header that carries it."""
    life_s: float = 0.0
    subject: str = ""
    refresh: str = ""
    resource: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    client: OwnClient = OwnClient("")
    signing: tuple[str, ...] = ()
    """The algorithms of assertions that its issuer accepts; empty if it does not say."""
    asked: dict[str, int] = {}
    """How many logins in a row have requested a scope because it was missing."""

    def __repr__(self) -> str:
        return f"Login({self.facts.place!r})"

    @property
    def value(self) -> str:
        """The value of the header; empty if a person must log in."""
        if not self.access or self.facts.ended:
            return ""
        return f"Bearer {self.access}" if self.header == BEARER else self.access

    @property
    def fresh_until(self) -> float:
        """When it should be refreshed: a tenth of its life before it expires, at most 60 s."""
        expires = self.facts.expires
        return expires - min(MAX_LEAD_S, self.life_s / 10) if expires else float("inf")

    @property
    def endpoint(self) -> TokenEndpoint:
        """Where it is refreshed."""
        return TokenEndpoint(self.token_endpoint, self.facts.issuer, self.client)

    def renewed(self, tokens: Tokens, now: float) -> "Login":
        """Return the login with new tokens; without a new refresh token, the old one stays."""
        facts = self.facts
        return replace(
            self,
            access=tokens.access,
            refresh=tokens.refresh or self.refresh,
            life_s=tokens.life_s,
            facts=replace(
                facts,
                scopes=facts.scopes if tokens.scopes is None else tokens.scopes,
                expires=now + tokens.life_s if tokens.life_s else 0.0,
                ends=_ends(tokens, now, bool(tokens.refresh or self.refresh)) or facts.ends,
                refreshes=bool(tokens.refresh or self.refresh),
                ended="",
            ),
        )

    def without_tokens(self, why: str) -> "Login":
        """Return what remains of a login that has ended."""
        facts = replace(self.facts, ended=why, expires=0.0, ends=0.0, refreshes=False)
        return replace(self, access="", refresh="", facts=facts)


def _ends(tokens: Tokens, now: float, refreshes: bool) -> float:
    if tokens.ends_s:
        return now + tokens.ends_s
    return now + tokens.life_s if tokens.life_s and not refreshes else 0.0


def key_login(place: LoginPlace, key: str, header: str, id: str) -> Login:
    """Return the login of a plain token or key, which never expires as far as is known."""
    facts = LoginFacts(id=id, place=place.shown)
    return Login(facts=facts, url=place.url, access=key, header=header or BEARER)
