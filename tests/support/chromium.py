"""A person at a real browser, for $BROWSER: logs in at oidc-provider's pages, and looks at the end.

    python -m tests.support.chromium FOLDER PERSON URL

Writes the text of the last page, what does not fit it, and pictures of it in light, in dark and at
the width of a phone.
"""

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
"""Debian's; Playwright downloads none."""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_WAIT_MS = 60_000
LOOKS: dict[str, tuple[Any, int, int]] = {
    "light": ("light", 900, 560),
    "dark": ("dark", 900, 560),
    "phone": ("dark", 375, 667),
}
_WIDTHS = "[document.documentElement.scrollWidth, window.innerWidth]"
_COLORS = """['h1', 'dd', 'dt', '.why', '.close', 'footer'].map(name => {
  const one = document.querySelector(name);
  return [name, getComputedStyle(one).color,
    getComputedStyle(one.closest('main') ?? document.body).backgroundColor];
})"""


def log_in(page: Page, person: str, url: str) -> None:
    """Log in and agree, with the keyboard and the mouse."""
    page.goto(url)
    page.fill("input[name=login]", person)
    page.fill("input[name=password]", "x")
    page.click("button[type=submit]")
    page.click("button[type=submit]")  # agree
    page.wait_for_selector("main .close")


def look(page: Page, folder: Path) -> dict[str, Any]:
    """Take the pictures, and note widths and colours of each."""
    seen: dict[str, Any] = {}
    for name, (scheme, width, height) in LOOKS.items():
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": height})
        page.screenshot(path=folder / f"login-{name}.png")
        seen[name] = {"widths": page.evaluate(_WIDTHS), "colors": page.evaluate(_COLORS)}
    return seen


def main() -> None:
    """Log in as a person, and leave what was seen in a folder."""
    folder, person, url = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_FLAGS))
        page = browser.new_page()
        page.set_default_timeout(_WAIT_MS)
        log_in(page, person, url)
        seen = {"text": page.inner_text("body"), "url": page.url, "looks": look(page, folder)}
        browser.close()
    (folder / "seen.new").write_text(json.dumps(seen))
    (folder / "seen.new").rename(folder / "seen.json")


if __name__ == "__main__":
    main()
