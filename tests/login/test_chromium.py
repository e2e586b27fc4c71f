"""A login by a real browser, at an authorization server by others.

`LOGIN_PICTURES=docs/pictures` also replaces the pictures of the documentation.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.login.people import Person
from tests.login.test_oidc import provider
from tests.support.chromium import CHROMIUM, LOOKS
from tests.support.shared import ROOT, unavailable
from tests.wrap.faults import until

pytestmark = pytest.mark.slow

PNG = b"\x89PNG\r\n\x1a\n"


def luminance(color: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_real_browser_logs_in_and_ends_on_a_page_that_can_be_read(tmp_path: Path) -> None:
    if not CHROMIUM.exists():
        unavailable("chromium-headless-shell is not installed")
    person = Person(tmp_path)
    browser = f"{sys.executable} -m tests.support.chromium {person.desk} ann"
    env = {"BROWSER": browser, "PYTHONPATH": str(ROOT)}
    with provider() as issuer:
        person.config(f"linear {issuer.url}")
        done = person.run("servers", "login", "linear", env=env)
        assert done.returncode == 0, done.stderr
        assert "logged in at linear as ann@people.test" in done.stdout
        assert until((person.desk / "seen.json").exists)
        assert person.call("linear", "whoami_ann").returncode == 0
    seen = json.loads((person.desk / "seen.json").read_text())
    for words in ("Logged in", "linear", "ann@people.test", "You may close this window."):
        assert words in seen["text"]
    assert seen["url"].startswith("http://127.0.0.1:")
    for name in LOOKS:
        needed, there = seen["looks"][name]["widths"]
        assert needed <= there, f"{name}: nothing is cut off"
        for part, front, back in seen["looks"][name]["colors"]:
            assert contrast(front, back) >= 4.5, f"{name}: {part} can be read"
        picture = person.desk / f"login-{name}.png"
        assert picture.read_bytes().startswith(PNG)
        if name != "phone" and (folder := os.environ.get("LOGIN_PICTURES")):
            shutil.copy(picture, folder)
    backs = {name: seen["looks"][name]["colors"][0][2] for name in LOOKS}
    assert luminance(backs["light"]) > 0.8
    assert luminance(backs["dark"]) < 0.2
