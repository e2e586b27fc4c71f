"""Every project of `portico new`: pushed, pulled by another user, and run again by its digest."""

import sys
from pathlib import Path

import pytest

from portico.commands.authoring.scaffold import KINDS
from tests.commands.authoring.test_new import build, done, with_tools, works
from tests.library.distribution.rigs import Home, docker_registry

pytestmark = pytest.mark.slow


PROJECTS = [
    *(("python", kind) for kind in KINDS),
    *((lang, kind) for lang in ("js", "python-wasm") for kind in KINDS),
]


@pytest.mark.parametrize(("lang", "kind"), PROJECTS)
def test_a_project_is_pushed_pulled_and_run_by_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lang: str, kind: str
) -> None:
    author, user = Home(tmp_path / "author"), Home(tmp_path / "user")
    project, bundle = author.folder / "hello-it", author.folder / "made.portico"
    if lang != "python":
        monkeypatch.setenv("PATH", with_tools()["PATH"])
    done(author.folder, "new", "hello-it", "--lang", lang, "--kind", kind, "-o", project)
    if lang != "python":
        build(project)
    done(author.folder, "compose", project, "-o", bundle)
    with docker_registry(tmp_path / "registry") as registry:
        digest = author.write(registry.host).ok("push", bundle, "team:hello@1.0")["digest"]
        user.write(registry.host).ok("pull", "team:hello@1.0")
        pinned = f"oci://{registry.host}/team/hello@{digest}"
    # The default config of the user, without the registry.
    there = user.folder / "home" / "config"
    there.mkdir(parents=True)
    for name in ("portico.toml", "portico.lock"):
        (there / name).write_text((user.folder / name).read_text())
    if lang == "python":  # a sandboxed component needs no approval
        done(user.folder, "approve", "--yes", pinned)
    is_tool = kind == "tools"
    works(user.folder, f"{sys.executable} -m portico run {pinned}" if is_tool else pinned, kind)


def test_an_alias_of_a_reference_is_added_pulled_and_listed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").write("127.0.0.1:1")
    added = home.portico("components", "add", "calc", "team:calc@1.0")
    assert added.returncode == 0, added.stderr
    assert "pull it with `portico pull oci://127.0.0.1:1/team/calc:1.0`" in added.stdout
    assert home.ok("components", "list") == {"calc": {"oci": "team:calc@1.0"}}
    assert "127.0.0.1:1 cannot be reached" in home.fails("pull")
    assert "not pulled yet" in home.portico("run", "calc").stderr
    assert "its tag is longer" in home.fails("components", "add", "x", f"team:calc@{'1' * 200}")
