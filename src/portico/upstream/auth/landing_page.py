"""The page on which the browser ends after a login."""

from collections.abc import Sequence
from html import escape

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ --back: #f3f4f7; --card: #fff; --text: #171a1f; --dim: #5a6372; --line: #e3e6eb;
  --shade: 0 1px 2px #10182808, 0 12px 32px #10182814;
  --mark: {mark_light}; --halo: {halo_light}; }}
@media (prefers-color-scheme: dark) {{ :root {{ --back: #0e1116; --card: #171b22; --text: #e9ecf1;
  --dim: #9aa5b5; --line: #2a313b; --shade: 0 1px 2px #0006, 0 12px 32px #0006;
  --mark: {mark_dark}; --halo: {halo_dark}; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; min-height: 100vh; min-height: 100dvh; display: flex; flex-direction: column;
  align-items: center; justify-content: center; gap: 1.25rem; padding: 1.25rem;
  background: var(--back); color: var(--text); font: 16px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", sans-serif; -webkit-text-size-adjust: 100%; }}
main {{ width: 100%; max-width: 27rem; padding: 2.25rem 2.25rem 2rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 16px; box-shadow: var(--shade); }}
.mark {{ display: block; width: 3.25rem; height: 3.25rem; margin-bottom: 1.25rem; padding: .7rem;
  border-radius: 50%; background: var(--halo); color: var(--mark); }}
h1 {{ margin: 0; font-size: 1.5rem; line-height: 1.25; letter-spacing: -.01em; }}
.why {{ margin: .5rem 0 0; color: var(--dim); overflow-wrap: anywhere; }}
dl {{ margin: 1.5rem 0 0; border-top: 1px solid var(--line); }}
dl div {{ display: flex; gap: 1rem; padding: .7rem 0; border-bottom: 1px solid var(--line); }}
dt {{ flex: 0 0 5rem; color: var(--dim); }}
dd {{ margin: 0; min-width: 0; font-weight: 600; overflow-wrap: anywhere; }}
.close {{ margin: 1.5rem 0 0; }}
footer {{ color: var(--dim); font-size: .875rem; }}
@media (max-width: 30rem) {{ main {{ padding: 1.75rem 1.5rem 1.5rem; }}
  dl div {{ display: block; }} dt {{ font-size: .875rem; }} }}
</style>
<main>
<svg class="mark" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.5"
  stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d="{sign}"/></svg>
<h1>{heading}</h1>
{body}
<p class="close">You may close this window.</p>
</main>
<footer>Portico</footer>
</html>
"""
_GOOD = ("M5 12.5l4.5 4.5L19 7.5", "#157f3c", "#4cc76a", "#e4f5ea", "#16301f")
_BAD = ("M7 7l10 10M17 7L7 17", "#c0362c", "#f47067", "#fbe9e7", "#3a1e1d")


def success_page(server: str, account: str) -> bytes:
    """Return the page of a login that succeeded."""
    rows = [("Server", server), *([("Account", account)] if account else [])]
    return _page("Logged in", "Portico can use this server now.", rows, _GOOD)


def failure_page(server: str, why: str) -> bytes:
    """Return the page of a login that failed."""
    sentence = f"{why[:1].upper()}{why[1:]}".rstrip(".") + "."
    return _page("Not logged in", sentence, [("Server", server)], _BAD)


def _page(
    heading: str, why: str, rows: Sequence[tuple[str, str]], sign: tuple[str, str, str, str, str]
) -> bytes:
    path, light, dark, halo_light, halo_dark = sign
    facts = "".join(
        f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in rows if value
    )
    page = _PAGE.format(
        title=f"{heading} - Portico",
        heading=heading,
        body=f'<p class="why">{escape(why)}</p>\n<dl>{facts}</dl>',
        sign=path,
        mark_light=light,
        mark_dark=dark,
        halo_light=halo_light,
        halo_dark=halo_dark,
    )
    return page.encode()
