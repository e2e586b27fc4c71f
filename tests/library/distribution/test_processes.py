"""Real commands: killed in the middle, two at once, wrong input, and nothing leaked."""

import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portico.library.distribution.manifest import digest_of
from tests.library.distribution.own_registry import (
    Answer,
    OwnRegistry,
    Seen,
    layer_of,
    own_registry,
)
from tests.library.distribution.rigs import PASSWORD, USER, WAIT_S, Home, component
from tests.upstream.connections.raw_server import certified

pytestmark = pytest.mark.slow
LAYER = layer_of(3_000_000)


@pytest.fixture
def registry() -> Iterator[OwnRegistry]:
    with own_registry() as made:
        yield made


@pytest.fixture
def home(registry: OwnRegistry, tmp_path: Path) -> Home:
    return Home(tmp_path / "home").write(registry.host)


def until(is_so: Callable[[], object]) -> None:
    """Wait for another process, with no event of its own to wait on."""
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        threading.Event().wait(0.02)


def start(home: Home, *argv: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        home.command(*argv),
        env=home.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed(child: "subprocess.Popen[str]") -> None:
    child.kill()
    child.communicate(timeout=WAIT_S)
    assert child.returncode == -9


def test_a_pull_that_is_killed_leaves_nothing_half_written_and_is_resumed(
    registry: OwnRegistry, home: Home
) -> None:
    registry.add("calc", "1", LAYER)
    there = f"oci://{registry.host}/calc:1"
    release = threading.Event()

    def half(seen: Seen) -> Answer | None:
        is_blob = "/blobs/" in seen.path
        return Answer(200, LAYER, cut=len(LAYER) // 2, hold=release) if is_blob else None

    registry.hook = half
    child = start(home, "pull", there)
    partial = home.cache / "partial" / digest_of(LAYER).removeprefix("sha256:")
    until(lambda: partial.exists() and partial.stat().st_size > 500_000)
    killed(child)
    release.set()
    assert home.blobs() == set()
    assert not home.lock.exists()
    assert "not pulled yet" in home.portico("run", there).stderr
    registry.hook = lambda _: None
    registry.seen.clear()
    [pulled] = home.ok("pull", there)
    assert Path(pulled["path"]).read_bytes() == LAYER
    [asked] = registry.requests("GET", "/blobs/")
    assert int(asked.headers["range"].strip("bytes=-")) > 500_000


def test_a_push_that_is_killed_is_taken_up_again(
    registry: OwnRegistry, home: Home, tmp_path: Path
) -> None:
    file = component(tmp_path / "calc.wasm", 20_000_000)
    there = f"oci://{registry.host}/calc:1"
    release, count = threading.Event(), itertools.count()

    def stall(seen: Seen) -> Answer | None:
        if seen.method == "PATCH" and next(count) == 1:
            assert release.wait(WAIT_S)
            return Answer(500, cut=0)
        return None

    registry.hook = stall
    child = start(home, "push", file, there)
    until(lambda: len(registry.requests("PATCH")) == 2)
    killed(child)
    release.set()
    assert registry.manifests == {}
    assert digest_of(file.read_bytes()) not in registry.blobs
    registry.hook = lambda _: None
    registry.seen.clear()
    home.ok("push", file, there)
    assert registry.blobs[digest_of(file.read_bytes())] == file.read_bytes()
    first = next(one for one in registry.requests("PATCH") if len(one.body) > 1000)
    assert first.headers["content-range"].startswith("8388608-"), "the first chunk is sent once"
    home.ok("pull", there)


def test_two_pulls_of_one_digest_at_once_download_it_once(
    registry: OwnRegistry, home: Home
) -> None:
    registry.add("calc", "1", LAYER)
    there = f"oci://{registry.host}/calc:1"
    both = threading.Event()

    def hold(seen: Seen) -> Answer | None:
        if len(registry.requests("GET", ".sig")) == 2:
            both.set()
        if "/blobs/" in seen.path:
            assert both.wait(WAIT_S)
        return None

    registry.hook = hold
    children = [start(home, "pull", there, "--json") for _ in range(2)]
    outputs = [child.communicate(timeout=WAIT_S * 2) for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    assert len(registry.requests("GET", "/blobs/")) == 1
    [first], [second] = (json.loads(out) for out, _ in outputs)
    assert first == second
    assert Path(first["path"]).read_bytes() == LAYER


def test_processes_that_pull_at_once_all_write_the_lock_file(
    registry: OwnRegistry, home: Home
) -> None:
    digests = {
        f"oci://{registry.host}/{name}:1": registry.add(name, "1", layer_of(900, name.encode()))
        for name in "abcdef"
    }
    children = [start(home, "pull", reference) for reference in digests]
    for child in children:
        assert child.communicate(timeout=WAIT_S * 2)
    assert [child.returncode for child in children] == [0] * 6
    assert {one: entry["digest"] for one, entry in home.locked().items()} == digests


def test_no_secret_is_shown_logged_or_stored(
    registry: OwnRegistry, home: Home, tmp_path: Path
) -> None:
    registry.add("calc", "1", LAYER)
    home.log_in(registry.host)

    def guard(seen: Seen) -> Answer | None:
        if seen.path.startswith("/token"):
            return Answer(200, b'{"token": "token-canary"}')
        if seen.headers.get("authorization") == "Bearer token-canary":
            return None
        realm = f'Bearer realm="{registry.url}/token",service="s"'
        return Answer(401, headers={"WWW-Authenticate": realm})

    registry.hook = guard
    there = f"oci://{registry.host}/calc:1"
    done = [home.portico("pull", there), home.portico("pull", there, "--json")]
    file = component(tmp_path / "calc.wasm")
    done.append(home.portico("push", file, f"oci://{registry.host}/mine:1"))
    assert [one.returncode for one in done] == [0, 0, 0]
    registry.hook = lambda seen: Answer(403, b'{"errors":[{"message":"no"}]}')
    done.append(home.portico("pull", there))
    secrets = (PASSWORD, "token-canary", "YWRhOnMzY3JldC1jYW5hcnk")
    for one in done:
        assert not any(secret in one.stdout + one.stderr for secret in secrets)
    for folder, _, files in os.walk(home.folder):
        for name in files:
            data = (Path(folder) / name).read_bytes()
            if not folder.endswith("docker"):
                assert not any(secret.encode() in data for secret in secrets), name
    assert USER


def test_a_registry_without_an_entry_is_contacted_over_https(tmp_path: Path) -> None:
    context, trusted = certified(tmp_path, "localhost")
    with own_registry(context) as registry:
        registry.host = registry.host.replace("127.0.0.1", "localhost")
        registry.add("calc", "1", LAYER)
        home = Home(tmp_path / "home")
        home.config.write_text('[trust]\nunsigned = ["localhost"]\n')
        there = f"oci://{registry.host}/calc:1"
        assert "TLS certificate is not trusted" in home.fails("pull", there)
        assert registry.seen == []
        home.env["SSL_CERT_FILE"] = str(trusted)
        home.config.write_text(f'[trust]\nunsigned = ["{registry.host}"]\n')
        [pulled] = home.ok("pull", there)
        assert Path(pulled["path"]).read_bytes() == LAYER


@pytest.mark.parametrize(
    "reference, why",
    [
        ("oci://calc:1", "it names no host; write oci://HOST/NAME:TAG"),
        ("oci:///calc:1", "it names no host"),
        ("calc", "neither oci://HOST/NAME:TAG nor NS:NAME@VERSION"),
        (
            f"oci://registry.example/calc:{'x' * 200}",
            "its tag is longer than 128 characters",
        ),
        ("oci://registry.example/Calc:1", "its name must be of lower-case letters"),
        ("oci://registry.example/calc@sha256:12", "is not a digest; write sha256: and 64"),
    ],
)
def test_a_wrong_reference_is_explained(home: Home, reference: str, why: str) -> None:
    assert why in home.fails("pull", reference)


@pytest.mark.parametrize(
    "content, why",
    [
        ("", "Input data was truncated"),
        ("not json", "malformed"),
        ('{"version": 2, "components": {}}', "its version is 2, not 1"),
        ('{"version": 1, "components": {"calc": {"digest": "x"}}}', "'calc' is not a reference"),
        ('{"version": 1, "components": {"oci://HOST/c:1": {"digest": "x"}}}', "is not a digest"),
        ('{"version": 1, "components": {"oci://HOST/c:1": {}}}', "missing required field `digest`"),
        ('{"version": 1, "components": [1]}', "Expected `object`, got `array`"),
    ],
)
def test_a_lock_file_that_was_edited_wrongly_is_refused_and_kept(
    registry: OwnRegistry, home: Home, content: str, why: str
) -> None:
    registry.add("calc", "1", LAYER)
    written = content.replace("HOST", registry.host)
    home.lock.write_text(written)
    said = home.fails("pull", f"oci://{registry.host}/calc:1")
    assert why in said
    assert "restore it, or delete it and pull again" in said
    assert home.lock.read_text() == written


def test_a_digest_that_was_edited_in_the_lock_file_is_a_moved_tag(
    registry: OwnRegistry, home: Home
) -> None:
    registry.add("calc", "1", LAYER)
    there = f"oci://{registry.host}/calc:1"
    home.ok("pull", there)
    content = json.loads(home.lock.read_text())
    content["components"][there]["digest"] = digest_of(b"another")
    home.lock.write_text(json.dumps(content))
    assert "refused: it was sha256:" in home.fails("pull", there)
    assert "not in the cache any more" in home.portico("run", there).stderr


def test_a_key_that_others_may_read_signs_nothing(
    registry: OwnRegistry, home: Home, tmp_path: Path
) -> None:
    key = tmp_path / "mine.key"
    assert home.portico("key", "new", key).returncode == 0
    file = component(tmp_path / "calc.wasm")
    key.chmod(0o644)
    said = home.fails("push", "--sign", "--key", key, file, f"oci://{registry.host}/calc:1")
    assert f"others may read this key (mode 0644); run `chmod 600 {key}`" in said
    assert registry.seen == []
    assert "a key exists there" in home.fails("key", "new", key)
    assert "cannot be read: No such file" in home.fails(
        "push", "--sign", file, f"oci://{registry.host}/calc:1"
    )


def test_keys_are_listed_with_their_state(home: Home, tmp_path: Path) -> None:
    assert "no key is trusted" in home.portico("key", "list").stdout
    home.portico("key", "new", tmp_path / "a.key")
    table = '[trust.keys.{}]\nfile = "{}"\nsigns_for = ["registry.example"]\n{}\n'
    good = table.format("ada", tmp_path / "a.key.pub", "retired = true")
    home.config.write_text(good + table.format("bob", tmp_path / "missing", ""))
    [ada, bob] = home.ok("key", "list")
    assert (ada["name"], ada["state"], ada["problem"]) == ("ada", "retired", "")
    assert ada["digest"].startswith("sha256:")
    assert "cannot be read: No such file" in bob["problem"]
    done = home.portico("key", "list")
    assert done.returncode == 1
    assert "retired" in done.stdout
    assert "cannot be read" in done.stdout
