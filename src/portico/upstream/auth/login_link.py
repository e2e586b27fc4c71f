"""A link to a login: it is opened in one browser, which alone can end that login."""

import hmac
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

_PATH = "/login/"
_COOKIE = "portico_login"


class LoginLink:
    """One link. Its first visitor gets a cookie, without which the login cannot be ended."""

    def __init__(self, random: Callable[[int], bytes]) -> None:
        self.path = _PATH + random(32).hex()
        """A secret: only the client that got the link knows it."""
        self.target = ""
        """The page of the authorization server."""
        self.is_opened = False
        self._cookie = random(32).hex()

    def __repr__(self) -> str:
        return f"LoginLink(is_opened={self.is_opened})"

    def is_at(self, path: str) -> bool:
        """True for the path of this link."""
        return hmac.compare_digest(path.encode(), self.path.encode())

    def open(self, cookies: str) -> tuple[str, ...] | None:
        """Return the headers that send a browser to the page; None if another one opened it."""
        if self.is_opened and not self.is_same_browser(cookies):
            return None
        self.is_opened = True
        cookie = f"{_COOKIE}={self._cookie}; Path=/; HttpOnly; SameSite=Lax"
        return f"location: {self.target}", f"set-cookie: {cookie}"

    def is_same_browser(self, cookies: str) -> bool:
        """True for the cookies of the browser that opened the link."""
        try:
            found = SimpleCookie(cookies).get(_COOKIE)
        except CookieError:
            return False
        value = "" if found is None else found.value
        return hmac.compare_digest(value.encode(), self._cookie.encode())


def is_link(path: str) -> bool:
    """True for the path of any link."""
    return path.startswith(_PATH)
