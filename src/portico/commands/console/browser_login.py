"""Sends a person to the page of a login, and waits until the browser ends here.

The browser may be on another machine: then the person pastes the URL that it ended at.
"""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress

from portico.commands.console.render import Screen
from portico.upstream.auth.flow import LoginError, Visit
from portico.upstream.auth.redirect_listener import RedirectListener

_MAX_PASTED = 64 * 1024


class BrowserLogin:
    """The visits of one login."""

    def __init__(self, screen: Screen, listener: RedirectListener, *, opens_browser: bool) -> None:
        self._screen = screen
        self._listener = listener
        self._opens_browser = opens_browser

    async def visit(self, wanted: Visit) -> str:
        """Open the page, and return the URL that the browser ended at or that was pasted."""
        if self._opens_browser and open_browser(wanted.url):
            self._screen.print(f"your browser opens {wanted.issuer}; log in there. Its page:")
        else:
            self._screen.print(f"open this page of {wanted.issuer} in a browser, and log in:")
        self._screen.print(f"  {wanted.url}")
        self._screen.print(
            "if that browser is on another machine, paste the URL that it ends at here:"
        )
        waits = (self._listener.wait(wanted.accepts), self._pasted(wanted))
        tasks = [asyncio.create_task(wait) for wait in waits]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pasted(self, wanted: Visit) -> str:
        """Return the first pasted URL that ends this visit; wait for ever without an input."""
        loop = asyncio.get_running_loop()
        typed = b""
        ready = asyncio.Event()
        try:
            descriptor = sys.stdin.fileno()
            loop.add_reader(descriptor, ready.set)
        except (OSError, ValueError, AttributeError):  # closed, or a file
            await loop.create_future()
            raise LoginError("standard input is closed") from None
        try:
            while True:
                await ready.wait()
                ready.clear()
                data = os.read(descriptor, _MAX_PASTED)
                if not data:
                    loop.remove_reader(descriptor)
                    await loop.create_future()
                *lines, typed = (typed + data)[-_MAX_PASTED:].split(b"\n")
                for line in filter(None, (line.decode(errors="replace").strip() for line in lines)):
                    if wanted.accepts(line):
                        return line
                    self._screen.print("that is not the URL at which this login ends; paste it:")
        finally:
            with suppress(OSError, ValueError):
                loop.remove_reader(descriptor)


def open_browser(url: str) -> bool:
    """Open a page in the user's browser; False if there is none here."""
    argv = _browser(url)
    if not argv:
        return False
    nowhere = subprocess.DEVNULL
    try:
        subprocess.Popen(
            argv, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    except OSError:
        return False
    return True


def _browser(url: str) -> list[str]:
    chosen = os.environ.get("BROWSER", "").split(os.pathsep)[0]
    if chosen:
        with suppress(ValueError):
            words = shlex.split(chosen)
            has_place = any("%s" in word for word in words)
            return [word.replace("%s", url) for word in words] if has_place else [*words, url]
        return []
    if os.environ.get("SSH_CONNECTION"):
        return []
    if sys.platform == "darwin":
        return ["open", url]
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return ["xdg-open", url] if has_display and shutil.which("xdg-open") else []
