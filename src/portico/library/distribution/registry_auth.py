"""Answers the challenge of a registry: with Basic, or with a token of the service that it names."""

from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from portico.core.http1.cross_origin import CrossOriginClient
from portico.core.http1.download import read_body
from portico.core.http1.errors import Http1Error
from portico.core.http1.headers import header_problem
from portico.core.http1.response import Http1Response
from portico.core.http1.url import Origin, parse_url
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.docker_config import RegistryLogin
from portico.library.distribution.registry_rule import RegistryRule
from portico.upstream.auth.challenge import all_challenges

_MAX_TOKEN = 256 * 1024
_STALL_S = 30.0
_FORM = {"content-type": "application/x-www-form-urlencoded"}


class _Token(Struct):
    token: str = ""
    access_token: str = ""


class RegistryAuth:
    """The credentials of one registry; tokens are kept by scope."""

    def __init__(self, client: CrossOriginClient, rule: RegistryRule, login: RegistryLogin) -> None:
        self._client = client
        self._rule = rule
        self._login = login
        self._headers: dict[str, str] = {}

    @property
    def has_login(self) -> bool:
        """True if the user has credentials for the registry."""
        return bool(self._login)

    def header(self, scope: str) -> dict[str, str]:
        """Return the header for a scope, empty before the first challenge."""
        value = self._headers.get(scope, "")
        return {"authorization": value} if value else {}

    async def obtain(self, challenge: str, scope: str) -> bool:
        """Answer a challenge; False if there is no way to. Raises DistributionError."""
        for scheme, params in all_challenges(challenge):
            if scheme == "bearer" and params.get("realm"):
                self._headers[scope] = f"Bearer {await self._token(params, scope)}"
                return True
            if scheme == "basic" and self._login.user:
                self._headers[scope] = self._login.basic
                return True
        return False

    async def _token(self, params: dict[str, str], scope: str) -> str:
        host = self._rule.origin.shown
        try:
            origin = parse_url(params["realm"]).origin
            if self._login:
                self._check_host(origin)
            response = await self._ask(params, scope)
            if not response.is_success:
                response.close()
                raise DistributionError(_refused(host, origin, response.status, self.has_login))
            data = await read_body(response, _MAX_TOKEN, _STALL_S)
        except Http1Error as error:
            raise DistributionError(f"the token service of {host} {error}") from None
        try:
            found = msgspec.json.decode(data, type=_Token)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found = _Token()
        token = found.token or found.access_token
        if not token or header_problem("authorization", token):
            raise DistributionError(f"the token service of {host} sent no token")
        return token

    def _check_host(self, origin: Origin) -> None:
        """Raise DistributionError if the service may not get the user's credentials."""
        if not self._rule.may_have_login(origin):
            host = self._rule.origin.shown
            raise DistributionError(
                f"{host} names {origin.shown} as its token service, another host, which gets none "
                f'of your credentials; if it is right, set token_hosts = ["{origin.shown}"] in its '
                "[registries.NAME] table"
            )

    async def _ask(self, params: dict[str, str], scope: str) -> Http1Response:
        realm = params["realm"]
        query = {"service": params.get("service", ""), "scope": scope}
        if self._login.identity_token:
            form = {
                **query,
                "grant_type": "refresh_token",
                "refresh_token": self._login.identity_token,
                "client_id": "portico",
            }
            content = urlencode(form).encode()
            return await self._client.send("POST", realm, _FORM, content=content)
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        login = {"authorization": self._login.basic} if self._login.user else {}
        return await self._client.send("GET", url, credentials=login)


def _refused(host: str, origin: Origin, status: int, has_login: bool) -> str:
    what = f"{origin.shown}, the token service of {host}, returned HTTP {status}"
    if status in (400, 401, 403):
        return f"{what}; {'log in at the registry again' if has_login else login_hint(host)}"
    return f"{what}; try again later"


def login_hint(host: str) -> str:
    """Say how to log in."""
    return (
        "log in with a tool that writes Docker's config, such as "
        f"`skopeo login --authfile ~/.docker/config.json {host}`"
    )
