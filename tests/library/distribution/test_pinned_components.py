"""Components of a registry: run by tag and by digest, served, and never pulled unasked."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.library.distribution.own_registry import Answer, OwnRegistry, own_registry
from tests.library.distribution.rigs import Home, docker_registry, run

pytestmark = pytest.mark.slow
CALC = '''
from portico import Server

server = Server("calc")


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b
'''


@pytest.fixture
def registry() -> Iterator[OwnRegistry]:
    with own_registry() as made:
        yield made


@pytest.fixture
def author(tmp_path: Path) -> Home:
    return Home(tmp_path / "author")


@pytest.fixture
def user(tmp_path: Path) -> Home:
    return Home(tmp_path / "user")


def bundle(home: Home, text: str = CALC) -> Path:
    """Compose a bundle of one Python component."""
    source, made = home.folder / "calc.py", home.folder / "calc.portico"
    source.write_text(text)
    done = run([sys.executable, "-m", "portico", "compose", str(source), "-o", str(made)], home.env)
    assert done.returncode == 0, done.stderr
    return made


def call(home: Home, component: str, *options: str) -> str:
    """Call a tool of a component as a client would; return its text, or the error."""
    inner = " ".join((sys.executable, "-m portico run", component, "--config", str(home.config)))
    server = " ".join((inner, *options))
    command = [sys.executable, "-m", "portico", "call", server, "add", '{"a": 2}']
    done = run(command, home.env)
    return done.stdout if done.returncode == 0 else done.stderr


def approve(home: Home, reference: str) -> None:
    done = home.portico("approve", "--yes", reference)
    assert done.returncode == 0, done.stderr


def test_a_bundle_is_signed_pushed_pulled_approved_and_run_by_digest(
    author: Home, user: Home, tmp_path: Path
) -> None:
    with docker_registry(tmp_path / "registry", login=True) as registry:
        author.write(registry.host).log_in(registry.host)
        user.log_in(registry.host)
        key = tmp_path / "ada.key"
        author.portico("key", "new", key)
        table = f'[trust.keys.ada]\nfile = "{key}.pub"\nsigns_for = ["r0"]\n'
        user.write(registry.host, trust=table)
        push = ("push", "--sign", "--key", key, bundle(author), "team:calc@1.0")
        digest = author.ok(*push)["digest"]
        [pulled] = user.ok("pull", "team:calc@1.0")
        assert (pulled["digest"], pulled["kind"]) == (digest, "bundle")
        assert pulled["signed_by"]["key"] == "ada"
        pinned = f"oci://{registry.host}/team/calc@{digest}"
    # The registry is gone: everything below is offline.
    assert "it needs rights that are not approved here" in call(user, "team:calc@1.0")
    approve(user, "team:calc@1.0")
    for reference in ("team:calc@1.0", pinned, f"other={pinned}"):
        assert call(user, reference).strip() == "3"
    user.write(registry.host, trust="[trust]\nunsigned = []\n")
    assert "by no key that [trust] allows" in call(user, pinned)


def test_nothing_is_pulled_unless_that_is_requested(
    registry: OwnRegistry, author: Home, user: Home
) -> None:
    author.write(registry.host).ok("push", bundle(author), "team:calc@1.0")
    user.write(registry.host)
    registry.seen.clear()
    there = f"oci://{registry.host}/team/calc:1.0"
    assert f"not pulled yet; run `portico pull {there}`" in call(user, there)
    assert registry.seen == []
    assert not user.lock.exists()
    call(user, there, "--pull")
    assert there in user.locked()
    approve(user, there)
    registry.seen.clear()
    assert call(user, there).strip() == "3"
    assert registry.seen == []


def test_a_configured_component_of_a_registry_is_served(
    registry: OwnRegistry, author: Home, user: Home
) -> None:
    author.write(registry.host).ok("push", bundle(author), "team:calc@1.0")
    user.write(registry.host)
    with user.config.open("a") as file:
        file.write('\n[components.calc]\noci = "team:calc@1.0"\n')
    server = " ".join((sys.executable, "-m portico serve --alone --config", str(user.config)))
    ask = [sys.executable, "-m", "portico", "call", "--json"]

    def served(*options: str) -> str:
        line = " ".join((server, *options))
        done = run([*ask, line, "calc__add", '{"a": 2}'], user.env)
        return done.stdout + done.stderr

    registry.seen.clear()
    assert "not pulled yet" in served()
    assert registry.seen == []
    served("--pull")
    assert registry.requests("GET", "/blobs/")
    approve(user, "team:calc@1.0")
    registry.hook = lambda _: Answer(500)
    assert '"3"' in served()
    assert call(user, "calc").strip() == "3"
    [pulled] = user.ok("pull")
    assert pulled["offline"]


def test_an_update_needs_no_approval_if_it_needs_no_more(
    registry: OwnRegistry, author: Home, user: Home
) -> None:
    author.write(registry.host).ok("push", bundle(author), "team:calc@1.0")
    user.write(registry.host).ok("pull", "team:calc@1.0")
    approve(user, "team:calc@1.0")
    newer = bundle_again(author)
    author.ok("push", newer, "team:calc@1.0")
    assert "refused: it was sha256:" in user.fails("pull", "team:calc@1.0")
    assert call(user, "team:calc@1.0").strip() == "3"
    user.ok("pull", "--update", "team:calc@1.0")
    # Other code of Python needs another approval.
    assert "not approved here" in call(user, "team:calc@1.0")
    approve(user, "team:calc@1.0")
    assert call(user, "team:calc@1.0").strip() == "12"


def bundle_again(home: Home) -> Path:
    (home.folder / "calc.portico").unlink()
    return bundle(home, CALC.replace("a + b", "a + b + 9"))
