"""A person at a browser, for $BROWSER: logs in at a page as somebody, and allows or denies."""

import html
import http.cookiejar
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode, urljoin


class _Browser:
    def __init__(self) -> None:
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        # Requests of a test stay on this machine.
        self._opener = urllib.request.build_opener(jar, urllib.request.ProxyHandler({}))

    def visit(self, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Return the URL at which the visit ends, and its page."""
        data = None if form is None else urlencode(form).encode()
        try:
            with self._opener.open(url, data, timeout=60) as response:
                return response.url, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.url or url, error.read().decode()


def log_in(url: str, person: str, allows: bool) -> tuple[str, str]:
    """Fill in every form as this person, until there is none."""
    browser = _Browser()
    url, page = browser.visit(url)
    for _ in range(5):
        action = re.search(r'<form[^>]*action="([^"]+)"', page)
        if action is None:
            break
        abort = re.search(r'href="([^"]+/abort)"', page)
        if not allows and abort is not None:
            url, page = browser.visit(urljoin(url, html.unescape(abort[1])))
            continue
        fields = re.findall(r'<input[^>]*type="hidden"[^>]*name="(\w+)"[^>]*value="([^"]*)"', page)
        form = {**dict(fields), "login": person, "password": "x"}
        url, page = browser.visit(urljoin(url, html.unescape(action[1])), form)
    return url, page


def main() -> None:
    """`browser.py FOLDER PERSON allow|deny|read|leave URL`: `read` only writes the URL down."""
    folder, person, how, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    (folder / "visited").write_text(url)
    if how in ("allow", "deny"):
        ended, page = log_in(url, person, how == "allow")
        (folder / "ended").write_text(ended)
        (folder / "page.html.new").write_text(page)
        (folder / "page.html.new").rename(folder / "page.html")


if __name__ == "__main__":
    main()
