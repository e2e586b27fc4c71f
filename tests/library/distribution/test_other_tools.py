"""Push and pull beside the programs of others: docker-registry, oras, skopeo and cosign."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.library.distribution.rigs import (
    PASSWORD,
    USER,
    DockerRegistry,
    Home,
    component,
    cosign,
    docker_registry,
    program,
    run,
)
from tests.library.distribution.with_oras import oras_pull, oras_push

pytestmark = pytest.mark.slow


@pytest.fixture(params=["open", "login"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DockerRegistry]:
    with docker_registry(tmp_path / "registry", login=request.param == "login") as found:
        found.login = (USER, PASSWORD) if request.param == "login" else None
        yield found


@pytest.fixture
def home(registry: DockerRegistry, tmp_path: Path) -> Home:
    made = Home(tmp_path / "home").write(registry.host)
    if registry.login:
        made.log_in(registry.host)
    return made


def test_a_component_is_pushed_pulled_and_the_same(
    registry: DockerRegistry, home: Home, tmp_path: Path
) -> None:
    file = component(tmp_path / "calc.wasm", 20_000_000)
    there = f"oci://{registry.host}/team/calc:1.0"
    pushed = home.ok("push", file, there, "--description", "adds numbers")
    [pulled] = home.ok("pull", there)
    assert pulled["digest"] == pushed["digest"]
    assert pulled["annotations"] == {"org.opencontainers.image.description": "adds numbers"}
    assert Path(pulled["path"]).read_bytes() == file.read_bytes()
    assert Path(pulled["path"]).name == "calc.wasm"
    assert home.locked()[there]["digest"] == pushed["digest"]
    [by_name] = home.ok("pull", "team:calc@1.0")
    [by_digest] = home.ok("pull", f"oci://{registry.host}/team/calc@{pushed['digest']}")
    assert by_name["path"] == by_digest["path"] == pulled["path"]
    manifest = json.loads(registry.blob(pushed["digest"]).read_bytes())
    assert manifest["config"]["mediaType"] == "application/vnd.wasm.config.v0+json"
    assert [one["mediaType"] for one in manifest["layers"]] == ["application/wasm"]
    config = json.loads(registry.blob(manifest["config"]["digest"]).read_bytes())
    assert (config["architecture"], config["os"]) == ("wasm", "wasip2")
    assert config["layerDigests"] == [manifest["layers"][0]["digest"]]


def test_the_same_file_pushed_again_has_the_same_digest(
    registry: DockerRegistry, home: Home, tmp_path: Path
) -> None:
    file = component(tmp_path / "calc.wasm")
    first = home.ok("push", file, f"oci://{registry.host}/calc:1")
    os.utime(file, (1, 1))
    assert home.ok("push", file, f"oci://{registry.host}/calc:1") == first


def test_without_the_login_both_are_refused_with_a_hint(tmp_path: Path) -> None:
    file = component(tmp_path / "calc.wasm")
    with docker_registry(tmp_path / "registry", login=True) as found:
        home = Home(tmp_path / "home").write(found.host)
        there = f"oci://{found.host}/calc:1"
        for argv in (("push", file, there), ("pull", there)):
            assert "requires a login; log in with a tool that writes Docker's config" in home.fails(
                *argv
            )
        home.log_in(found.host, password="wrong-canary")
        for argv in (("push", file, there), ("pull", there)):
            said = home.fails(*argv)
            assert f"{found.host} refused" in said
            assert "wrong-canary" not in said
        assert not home.lock.exists()


def test_oras_pulls_what_portico_pushed(
    registry: DockerRegistry, home: Home, tmp_path: Path
) -> None:
    file = component(tmp_path / "calc.wasm", 3_000_000)
    home.ok("push", file, f"oci://{registry.host}/team/calc:1.0")
    [found] = oras_pull(f"{registry.host}/team/calc:1.0", tmp_path / "out", registry.login)
    assert Path(found).name == "calc.wasm"
    assert Path(found).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("chunked", [False, True])
def test_portico_pulls_what_oras_pushed(
    registry: DockerRegistry, home: Home, tmp_path: Path, chunked: bool
) -> None:
    file = component(tmp_path / "calc.wasm", 3_000_000)
    oras_push(f"{registry.host}/team/calc:1.0", file, registry.login, chunked=chunked)
    [pulled] = home.ok("pull", f"oci://{registry.host}/team/calc:1.0")
    assert Path(pulled["path"]).read_bytes() == file.read_bytes()


def test_skopeo_copies_what_portico_pushed(
    registry: DockerRegistry, home: Home, tmp_path: Path
) -> None:
    file = component(tmp_path / "calc.wasm", 3_000_000)
    pushed = home.ok("push", file, f"oci://{registry.host}/team/calc:1.0")
    login = ["--src-creds", f"{USER}:{PASSWORD}"] if registry.login else []
    source, out = f"docker://{registry.host}/team/calc:1.0", tmp_path / "out"
    skopeo = [program("skopeo"), "--insecure-policy", "copy", "--src-tls-verify=false", *login]
    done = run([*skopeo, source, f"oci:{out}"], home.env)
    assert done.returncode == 0, done.stderr
    blobs = out / "blobs" / "sha256"
    assert (blobs / pushed["digest"][7:]).exists()
    assert (blobs / hashlib.sha256(file.read_bytes()).hexdigest()).read_bytes() == file.read_bytes()


class _Signer:
    """A user with a key of Portico's, and one of cosign's."""

    def __init__(self, home: Home, registry: DockerRegistry, folder: Path) -> None:
        self.home = home
        self.host = registry.host
        self.folder = folder
        self.ours = folder / "ours.key"
        self.env = {**home.env, "COSIGN_PASSWORD": "pass"}
        assert home.portico("key", "new", self.ours).returncode == 0

    def cosign(self, *argv: str) -> str:
        done = run([cosign(), *argv], self.env, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def trust(self, name: str, public: Path) -> None:
        table = f'[trust.keys.{name}]\nfile = "{public}"\nsigns_for = ["r0"]\n'
        self.home.write(self.host, trust=table)


@pytest.fixture
def signer(home: Home, registry: DockerRegistry, tmp_path: Path) -> _Signer:
    return _Signer(home, registry, tmp_path)


def test_cosign_accepts_what_portico_signed(signer: _Signer, tmp_path: Path) -> None:
    file = component(tmp_path / "calc.wasm")
    there = f"{signer.host}/team/calc"
    pushed = signer.home.ok("push", "--sign", "--key", signer.ours, file, f"oci://{there}:1.0")
    verify = ("verify", "--key", f"{signer.ours}.pub", "--insecure-ignore-tlog=true")
    plain = "--allow-http-registry"
    [found] = json.loads(signer.cosign(*verify, plain, f"{there}:1.0"))
    assert found["critical"]["identity"]["docker-reference"] == there
    assert found["critical"]["image"]["docker-manifest-digest"] == pushed["digest"]
    assert found["optional"]["created"]


def test_portico_accepts_what_cosign_signed(signer: _Signer, tmp_path: Path) -> None:
    file = component(tmp_path / "calc.wasm")
    there = f"{signer.host}/team/calc"
    digest = signer.home.ok("push", file, f"oci://{there}:1.0")["digest"]
    signer.trust("theirs", tmp_path / "cosign.pub")
    signer.cosign("generate-key-pair")
    assert "it is not signed" in signer.home.fails("pull", f"oci://{there}:1.0")
    sign = ("sign", "--key", "cosign.key", "--tlog-upload=false", "--yes", "--allow-http-registry")
    signer.cosign(*sign, f"{there}@{digest}")
    [pulled] = signer.home.ok("pull", f"oci://{there}:1.0")
    assert pulled["signed_by"]["key"] == "theirs"


def test_both_sign_one_component_one_after_the_other(signer: _Signer, tmp_path: Path) -> None:
    file = component(tmp_path / "calc.wasm")
    there = f"{signer.host}/team/calc"
    signer.cosign("generate-key-pair")
    digest = signer.home.ok("push", file, f"oci://{there}:1.0")["digest"]
    sign = ("sign", "--key", "cosign.key", "--tlog-upload=false", "--yes", "--allow-http-registry")
    signer.cosign(*sign, f"{there}@{digest}")
    signer.home.ok("push", "--sign", "--key", signer.ours, file, f"oci://{there}:1.0")
    verify = ("verify", "--insecure-ignore-tlog=true", "--allow-http-registry", "--key")
    for public, name in ((Path(f"{signer.ours}.pub"), "ours"), (tmp_path / "cosign.pub", "theirs")):
        assert signer.cosign(*verify, str(public), f"{there}:1.0")
        signer.trust(name, public)
        [pulled] = signer.home.ok("pull", f"oci://{there}:1.0")
        assert pulled["signed_by"]["key"] == name


def test_a_credential_helper_is_asked_without_a_shell(tmp_path: Path) -> None:
    file = component(tmp_path / "calc.wasm")
    folder = tmp_path / "bin"
    folder.mkdir()
    helper = folder / "docker-credential-tests"
    answer = json.dumps({"ServerURL": "x", "Username": USER, "Secret": PASSWORD})
    helper.write_text(
        f"#!/bin/sh\nread host\necho \"$1 $host\" >>{tmp_path}/asked\necho '{answer}'\n"
    )
    helper.chmod(0o700)
    with docker_registry(tmp_path / "registry", login=True) as found:
        home = Home(tmp_path / "home").write(found.host)
        home.env["PATH"] = f"{folder}:{home.env['PATH']}"
        home.docker({"credHelpers": {found.host: "tests"}})
        home.ok("push", file, f"oci://{found.host}/calc:1")
        assert (tmp_path / "asked").read_text() == f"get {found.host}\n"
        wrong = base64.b64encode(b"ada:wrong").decode()
        home.docker({"credsStore": "tests", "auths": {found.host: {"auth": wrong}}})
        home.ok("pull", f"oci://{found.host}/calc:1")
        home.docker({"credsStore": "../tests; true"})
        assert "not the name of a credential helper" in home.fails(
            "pull", f"oci://{found.host}/calc:1"
        )
        home.docker({"credsStore": "absent"})
        assert "docker-credential-absent is not installed" in home.fails(
            "pull", f"oci://{found.host}/calc:1"
        )
