"""The page on which the browser ends after a login."""

from html import escape

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ --back: #f6f7f9; --card: #fff; --text: #1b1f24; --dim: #5b6470; --line: #dfe3e8;
  --mark: {mark_light}; }}
@media (prefers-color-scheme: dark) {{ :root {{ --back: #101317; --card: #191d23; --text: #e8ebef;
  --dim: #9aa4b1; --line: #2a3038; --mark: {mark_dark}; }} }}
body {{ margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }}
main {{ max-width: 26rem; margin: 1rem; padding: 2rem 2.25rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 14px; }}
h1 {{ margin: 0 0 .5rem; font-size: 1.25rem; overflow-wrap: anywhere; }}
h1::before {{ content: "{sign}"; color: var(--mark); margin-right: .5rem; }}
p {{ margin: .25rem 0 0; color: var(--dim); overflow-wrap: anywhere; }}
strong {{ color: var(--text); font-weight: 600; }}
</style>
<main><h1>{heading}</h1>{lines}</main>
</html>
"""
_GOOD = ("✓", "#1a7f37", "#3fb950")
_BAD = ("✕", "#c0362c", "#f47067")


def success_page(server: str, account: str) -> bytes:
    """Return the page of a login that succeeded."""
    whose = f" as <strong>{escape(account)}</strong>" if account else ""
    lines = (
        f"<p>Portico is logged in at <strong>{escape(server)}</strong>{whose}.</p>",
        "<p>You may close this window.</p>",
    )
    return _page("Logged in", "".join(lines), _GOOD)


def failure_page(server: str, why: str) -> bytes:
    """Return the page of a login that failed."""
    lines = (
        f"<p>Portico is not logged in at <strong>{escape(server)}</strong>.</p>",
        f"<p>{escape(why)}</p>",
        "<p>You may close this window.</p>",
    )
    return _page("Not logged in", "".join(lines), _BAD)


def _page(heading: str, lines: str, sign: tuple[str, str, str]) -> bytes:
    mark, light, dark = sign
    page = _PAGE.format(
        title=f"{heading} - Portico",
        heading=heading,
        lines=lines,
        sign=mark,
        mark_light=light,
        mark_dark=dark,
    )
    return page.encode()
