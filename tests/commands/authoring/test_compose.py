"""`portico compose`, and `run`, `inspect` and `approve` of what it wrote: real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.authoring.composing import (
    CALC,
    LOUD,
    OTHER_SDK,
    RUN,
    call,
    composed,
    done,
    stranger,
)
from tests.support.running import WAIT_S
from tests.support.tmux import tmux


def test_a_bundle_serves_the_same_elsewhere(folder: Path) -> None:
    composed(
        folder,
        *(folder / "guard.py", folder / "calc.py", folder / "words.json"),
        *("--handlers", folder / "functions.py"),
    )
    away = stranger(folder)
    bundle = away / "one.portico"
    done(away, "approve", bundle, "--yes")
    assert call(away, bundle, "add", a=2, b=1) == "42"
    assert call(away, bundle, "hello") == "hello from the bundle"
    kept = away.parent / "home/cache/components"
    names = {path.name for path in kept.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert names == {
        *("calc.py", "helpers.py", "__init__.py", "circle.py", "data.txt"),
        *("guard.py", "words.json", "functions.py"),
    }


def test_the_same_input_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    made = []
    for number, (umask, zone) in enumerate([(0o022, "UTC"), (0o077, "Asia/Tokyo")]):
        place = tmp_path / f"place-{number}" / ("deep/" * number) / "work"
        shutil.copytree(folder, place)
        for index, path in enumerate(sorted(place.rglob("*.py"))):
            os.utime(path, (index + number * 1e8,) * 2)
            path.chmod(0o600 if number else 0o755)
        words = ["guard.py", "calc.py", "words.json", "echo hi", "-o", "one.portico", "--prefix"]
        subprocess.run(
            [sys.executable, "-m", "portico", "compose", *words],
            cwd=place,
            env={**os.environ, "PORTICO_HOME": str(tmp_path / f"h{number}"), "TZ": zone},
            umask=umask,
            check=True,
            capture_output=True,
            timeout=WAIT_S,
        )
        made.append((place / "one.portico").read_bytes())
        assert (place / "one.portico").stat().st_mode & 0o777 == 0o644
    assert made[0] == made[1]
    for secret in (os.fsencode(tmp_path), b"place-", b"unused"):
        assert secret not in made[0]


def test_a_stranger_is_asked_before_code_or_commands_run(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    composed(folder, folder / "calc.py", f"shell=sh -c 'touch {mark}'")
    away = stranger(folder)
    bundle = away / "one.portico"
    said = done(away, "run", bundle, code=1)
    assert "it needs rights that are not approved here" in said
    assert f"run `portico approve {bundle}` to allow it" in said
    assert "calc: runs Python code without a sandbox: it can read and change your files" in said
    assert f"shell: starts the command: sh -c 'touch {mark}'" in said
    assert not mark.exists()
    assert not (away.parent / "home/cache/components").exists()
    assert "there is no terminal to ask at; add --yes" in done(away, "approve", bundle, code=1)


def test_composing_a_bundle_of_somebody_else_does_not_approve_it(folder: Path) -> None:
    composed(folder, folder / "calc.py")
    away = stranger(folder)
    around = away / "around.portico"
    said = done(away, "compose", away / "one.portico", "-o", around)
    assert "one in it needs rights that are not approved here; run `portico approve" in said
    assert "one/calc: runs Python code without a sandbox" in done(away, "run", around, code=1)
    done(away, "approve", "-y", away / "one.portico")
    said = done(away, "compose", away / "one.portico", "-o", around, "--force")
    assert "not approved" not in said
    assert call(away, around, "add", a=1, b=2) == "3"


def test_a_person_is_asked_at_the_terminal(folder: Path, tmp_path: Path) -> None:
    composed(folder, folder / "calc.py")
    away = stranger(folder)
    home = {"PORTICO_HOME": str(away.parent / "home"), "PATH": os.environ["PATH"]}
    command = f"{sys.executable} -m portico run one.portico"
    for answer, shown in (
        ("n", "portico: one.portico: not allowed, so nothing of it was run"),
        ("y", "portico: serving calc over stdio"),
    ):
        with tmux(tmp_path, away, home) as terminal:
            terminal.type(command)
            terminal.until("Allow this? [y/N]")
            terminal.type(answer)
            terminal.until(shown)
    assert call(away, away / "one.portico", "add", a=2, b=1) == "3"


def test_only_changed_wishes_are_asked_for_again(folder: Path) -> None:
    def compose(*words: str | Path) -> None:
        done(folder, "compose", *words, "-o", folder / "one.portico", "--force")

    command = f"echo={sys.executable} -c pass"
    compose(folder / "words.json", command)
    away = folder.parent / "elsewhere" / "work"
    away.mkdir(parents=True)
    bundle = away / "one.portico"

    def approved(*, code: int = 0) -> str:
        shutil.copy(folder / "one.portico", bundle)
        return done(away, "approve", bundle, *(["--yes"] if not code else []), code=code)

    assert "echo: starts the command" in approved()
    (folder / "words.json").write_text(json.dumps({"tools": []}))
    compose(folder / "words.json", command)
    assert "all rights are approved already" in approved()
    compose(folder / "words.json", f"{command} more")
    said = approved(code=1)
    assert "echo: starts the command" in said
    assert "-c pass more" in said


def test_a_bundle_without_code_needs_no_approval(folder: Path) -> None:
    composed(folder, folder / "words.json")
    away = stranger(folder)
    assert "needs no rights" in done(away, "approve", away / "one.portico")
    listed = json.loads(done(away, "inspect", f"{RUN} {away}/one.portico", "--json"))
    assert [one["name"] for one in listed["tools"]] == ["hello"]


def test_a_bundle_with_middleware_last_is_middleware(folder: Path) -> None:
    composed(folder, folder / "guard.py", name="mw.portico")
    bundle = composed(folder, folder / "mw.portico", folder / "calc.py")
    assert call(folder, bundle, "add", a=2, b=1) == "42"
    beside = f"{sys.executable} -m portico run {folder}/mw.portico {folder}/calc.py"
    assert call(folder, beside, "add", a=3, b=1) == "43"
    said = done(folder, "run", folder / "mw.portico", code=1)
    assert "nothing is behind this middleware" in said


def test_inspect_shows_a_bundle_and_runs_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "calc.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{CALC}")
    bundle = composed(folder, folder / "calc.py", "https://example.com/mcp", "-t", "http:8123")
    found = json.loads(done(folder, "inspect", bundle, "--json", "--verify"))
    assert (found["format"], found["transport"], found["verified"]) == (1, "http:8123", True)
    assert [one["kind"] for one in found["components"]] == ["python", "url"]
    assert found["components"][0]["interface"] == "python@1"
    assert not (tmp_path / "ran").exists()
    damaged = folder / "damaged.portico"
    damaged.write_bytes(bundle.read_bytes().replace(b"return helpers", b"return hilpers"))
    said = done(folder, "inspect", damaged, "--verify", code=1)
    assert "'parts/0/calc.py' in it does not have its digest" in said
    assert "does not have its digest" in done(folder, "run", damaged, code=1)
    assert "--verify is for bundles" in done(folder, "inspect", "x=echo", "--verify", code=2)


def test_overrides_and_profiles_are_composed(folder: Path) -> None:
    better = folder / "better.py"
    better.write_text(CALC.replace("helpers.plus(a, b)", "1000"))
    config = folder.parent / "home/config/portico.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[components.sums]\npath = "{folder}/calc.py"\n[profiles.dev]\ncomponents = ["sums"]\n'
    )
    bundle = composed(folder, "-p", "dev", "--override", f"sums={better}")
    assert call(folder, bundle, "add", a=1, b=2) == "1000"
    found = json.loads(done(folder, "inspect", bundle, "--json"))
    assert found["components"][0]["overrides"] == "calc.py"
    assert (
        call(
            folder,
            f"{sys.executable} -m portico run {bundle} --override sums={folder}/calc.py",
            "add",
            a=1,
            b=2,
        )
        == "3"
    )
    said = done(folder, "compose", "-p", "den", "-o", folder / "x.portico", code=1)
    assert "there is no profile 'den'; did you mean dev?" in said


def test_a_script_of_another_library_is_in_the_bundle(folder: Path) -> None:
    (folder / "other.py").write_text(OTHER_SDK)
    (folder / "words.py").write_text(LOUD)
    composed(folder, folder / "other.py", folder / "words.json")
    away = stranger(folder)
    said = done(away, "run", away / "one.portico", code=1)
    assert "other: starts a program of the bundle: '{python}' '{bundle}/parts/0/other.py'" in said
    done(away, "approve", "-y", away / "one.portico")
    assert call(away, away / "one.portico", "shout", text="hi") == "HI"


def test_values_of_variables_are_never_in_a_bundle(folder: Path) -> None:
    config = folder.parent / "home/config/portico.toml"
    config.parent.mkdir(parents=True)
    script = "import os, sys; print(os.environ.get('API_KEY'), file=sys.stderr)"
    config.write_text(
        f"[servers.api]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = ['-c', {json.dumps(script)}]\nenv = {{ API_KEY = 'very-secret' }}\n"
        "[servers.remote]\nurl = 'https://example.com/mcp'\nheaders = { X = 'very-secret' }\n"
        "[servers.place]\nurl = 'https://example.com/${SECRET:-very-secret}'\n"
        "[servers.word]\ncommand = 'cat'\nargs = ['${SECRET:-very-secret}']\n"
    )
    bundle = composed(folder, "api")
    assert b"very-secret" not in bundle.read_bytes()
    found = json.loads(done(folder, "inspect", bundle, "--json"))
    assert found["components"][0]["variables"] == ["API_KEY"]
    for argument in ("remote", "https://me:very-secret@example.com/mcp"):
        said = done(folder, "compose", argument, "-o", folder / "two.portico", code=1)
        assert "secret" in said
        assert "very-secret" not in said
    for argument, place in (("place", "URL"), ("word", "command line")):
        said = done(folder, "compose", argument, "-o", folder / "two.portico", code=1)
        assert f"{argument}: its {place} refers to a value, which would be in the bundle" in said
        assert "very-secret" not in said
    assert not (folder / "two.portico").exists()


_BLOCKED = """
import os, sys, time
real = getattr(os, sys.argv[1])
def blocked(*arguments, **more):
    if any("draft" in str(one) for one in (*arguments, *more.values())) or sys.argv[1] == "fsync":
        print("here", file=sys.stderr, flush=True)
        time.sleep(600)
    return real(*arguments, **more)
setattr(os, sys.argv[1], blocked)
from portico.commands.cli.main import main
main(sys.argv[2:])
"""


def killed_at(call: str, folder: Path, *words: str | Path) -> None:
    """Run a command, and kill it in the middle of this function."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BLOCKED, call, *map(str, words)],
        env={**os.environ, "PORTICO_HOME": str(folder.parent / "home")},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"here" in process.stderr.readline()
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)
    process.stderr.close()


@pytest.mark.parametrize("at", ["fsync", "link"])
def test_compose_that_is_killed_leaves_nothing_and_works_again(folder: Path, at: str) -> None:
    words = ("compose", folder / "calc.py", "-o", folder / "one.portico")
    killed_at(at, folder, *words)
    assert not (folder / "one.portico").exists()
    bundle = composed(folder, folder / "calc.py")
    assert call(folder, bundle, "add", a=1, b=2) == "3"


def test_a_replaced_bundle_survives_a_kill(folder: Path) -> None:
    bundle = composed(folder, folder / "calc.py")
    before = bundle.read_bytes()
    killed_at("replace", folder, "compose", folder / "words.json", "-o", bundle, "--force")
    assert bundle.read_bytes() == before


def test_a_first_run_that_is_killed_works_again(folder: Path) -> None:
    bundle = composed(folder, folder / "calc.py")
    killed_at("rename", folder, "run", bundle)
    [left] = (folder.parent / "home/cache/components").iterdir()
    assert left.name.endswith(".draft")
    os.utime(left, (0, 0))
    assert call(folder, bundle, "add", a=1, b=2) == "3"
    assert not left.exists()


@pytest.mark.parametrize(
    ("make", "words", "why", "code"),
    [
        (lambda f: (f / "out").mkdir(), ["calc.py", "-o", "out"], "out: a folder; give", 1),
        (lambda f: (f / "out").touch(), ["calc.py", "-o", "out"], "exists already; give", 1),
        (
            lambda f: os.mkfifo(f / "out"),
            ["calc.py", "-o", "out", "--force"],
            "out: not a regular file; give another name",
            1,
        ),
        (lambda f: None, ["calc.py", "-o", "none/out"], "there is no folder", 1),
        (lambda f: None, ["calc.py", "-o", "out", "-t", "http:0"], "is not stdio, http or", 2),
        (lambda f: None, ["-o", "out"], "give a COMPONENT, or a profile with -p", 2),
        (lambda f: None, ["ns:calc", "-o", "out"], "there is no default registry", 1),
        (lambda f: (f / "bad.py").write_text("def ("), ["bad.py", "-o", "out"], "SyntaxError", 1),
        (
            lambda f: (f / "words.json").write_text('[{"name": "x"}]'),
            ["words.json", "-o", "out"],
            'tool 1 ("x"): inputSchema: is missing',
            1,
        ),
        (
            lambda f: (f / "e.portico").touch(),
            ["e.portico", "-o", "out"],
            "empty, not a bundle; give",
            1,
        ),
        (lambda f: (f / "e.portico").mkdir(), ["e.portico", "-o", "out"], "a folder, not a", 1),
        (
            lambda f: (f / "z.portico").write_bytes(b"PK\3\4" + bytes(60)),
            ["z.portico", "-o", "out"],
            "a zip file of another program, not a bundle; give a file that `portico compose`",
            1,
        ),
        (
            lambda f: (f / "component.toml").write_text(
                'component = "calc.py"\ninterface = "python@7"\n'
            ),
            ["calc.py", "-o", "out"],
            "made for python@7, and this Portico knows python@1",
            1,
        ),
        (
            lambda f: (f / "component.toml").write_text(
                'component = "calc.py"\ninterface = "strange@1"\n'
            ),
            ["calc.py", "-o", "out"],
            "the interface strange@1 is not known; this Portico knows python@1",
            1,
        ),
    ],
)
def test_bad_input_is_explained(
    folder: Path, make: Callable[[Path], object], words: list[str], why: str, code: int
) -> None:
    make(folder)
    existed = (folder / "out").exists()
    ran = subprocess.run(
        [sys.executable, "-m", "portico", "compose", *words],
        cwd=folder,
        env={**os.environ, "PORTICO_HOME": str(folder.parent / "home")},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ran.returncode, why in ran.stderr) == (code, True), ran.stderr
    assert (folder / "out").exists() == existed


def test_data_that_a_project_names_is_in_the_bundle(folder: Path) -> None:
    (folder / "component.toml").write_text(
        'component = "calc.py"\ninterface = "python@1"\nfiles = ["*.txt"]\n'
    )
    (folder / "sum.txt").write_text("77")
    (folder / "calc.py").write_text(
        CALC.replace("helpers.plus(a, b)", "int(open(__file__[:-7] + 'sum.txt').read())")
    )
    composed(folder, folder / "calc.py")
    away = stranger(folder)
    done(away, "approve", "-y", away / "one.portico")
    assert call(away, away / "one.portico", "add", a=1, b=2) == "77"


@pytest.mark.parametrize("name", ["secret.txt", "folder/secret.txt"])
def test_a_link_never_puts_a_private_file_into_a_bundle(
    folder: Path, tmp_path: Path, name: str
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret.txt").write_text("very-secret")
    if name.startswith("folder"):
        (folder / "folder").symlink_to(private)
    else:
        (folder / name).symlink_to(private / name)
    (folder / "component.toml").write_text(f'component = "calc.py"\nfiles = ["{name}"]\n')
    said = done(folder, "compose", folder / "calc.py", "-o", folder / "out", code=1)
    assert f"{name}: a link that leads outside of its project; copy the file" in said
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "a folder, not a file; give a file in it"),
        (
            lambda path: path.touch(),
            "empty, not a bundle; give a file that `portico compose` wrote",
        ),
        (lambda path: path.write_text("hi"), "a file of another program, not a bundle; give"),
        (lambda path: path.write_bytes(b"PK\3\4" + bytes(60)), "a zip file of another program"),
        (lambda path: None, "no such file"),
    ],
)
def test_what_is_not_a_bundle_is_explained_by_every_command(
    folder: Path, make: Callable[[Path], object], why: str
) -> None:
    path = folder / "other.portico"
    make(path)
    for words in (["run"], ["inspect"], ["compose", "-o", folder / "out"]):
        assert why in done(folder, *words, path, code=1)
    assert not (folder / "out").exists()
