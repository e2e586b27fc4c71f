"""Credentials from Docker's config and its helpers, which may be broken, slow or absent."""

import json
import os
from pathlib import Path

import pytest

from portico.library.distribution import docker_config
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.docker_config import NO_LOGIN, RegistryLogin, login_for

HOST = "registry.example:5000"
CANARY = "s3cret-canary"


class Docker:
    """Docker's config of one user, and a folder for helpers."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "config.json"
        self.bin = folder / "bin"
        self.bin.mkdir()
        path = os.pathsep.join((str(self.bin), os.environ["PATH"]))
        self.env = {"DOCKER_CONFIG": str(folder), "PATH": path}

    def write(self, config: object) -> None:
        self.config.write_text(json.dumps(config))

    def helper(self, script: str, name: str = "tests") -> None:
        path = self.bin / f"docker-credential-{name}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)


def has_ended(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().split()[2] == "Z"


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return Docker(tmp_path)


async def test_without_a_config_there_is_no_login(docker: Docker) -> None:
    assert await login_for(HOST, docker.env) == NO_LOGIN
    docker.write({"auths": {"other.example": {"auth": "YTpi"}}})
    assert await login_for(HOST, docker.env) == NO_LOGIN


@pytest.mark.parametrize("key", [HOST, f"https://{HOST}", f"https://{HOST}/v1/", HOST.upper()])
async def test_a_login_is_found_by_host_and_port(docker: Docker, key: str) -> None:
    docker.write({"auths": {"registry.example": {"auth": "eDp5"}, key: {"auth": "YTpiOmM="}}})
    assert await login_for(HOST, docker.env) == RegistryLogin("a", "b:c")


@pytest.mark.parametrize(
    "config, why",
    [
        ("not json", "not a Docker config"),
        ({"auths": []}, "not a Docker config"),
        ({"auths": {HOST: {"auth": "!"}}}, "the credentials for .* cannot be read"),
        ({"auths": {HOST: {"auth": "YWJj"}}}, "the credentials for .* cannot be read"),
        ({"credsStore": "a/../b"}, "not the name of a credential helper"),
        ({"credsStore": "absent"}, "docker-credential-absent is not installed"),
    ],
)
async def test_a_broken_config_is_explained(docker: Docker, config: object, why: str) -> None:
    docker.write(config)
    with pytest.raises(DistributionError, match=why):
        await login_for(HOST, docker.env)


@pytest.mark.parametrize(
    "script, why",
    [
        (f"echo '{CANARY}'", "sent no credentials that can be read"),
        (f"echo '{CANARY}'; exit 3", "failed with exit code 3"),
        ("exec yes", "sent too much"),
    ],
)
async def test_a_broken_helper_is_explained_without_its_words(
    docker: Docker, script: str, why: str
) -> None:
    docker.write({"credsStore": "tests"})
    docker.helper(script)
    with pytest.raises(DistributionError, match=why) as caught:
        await login_for(HOST, docker.env)
    assert CANARY not in str(caught.value)


async def test_a_helper_that_hangs_is_ended_with_what_it_started(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_config, "HELPER_S", 1.0)
    docker.write({"credsStore": "tests"})
    os.mkfifo(tmp_path / "pipe")
    # It waits for a writer that never comes; so does the process that it starts.
    docker.helper(f"cat <{tmp_path}/pipe & echo $! >{tmp_path}/pid; cat <{tmp_path}/pipe")
    with pytest.raises(
        DistributionError, match="docker-credential-tests did not answer within 1 s"
    ):
        await login_for(HOST, docker.env)
    assert has_ended(int((tmp_path / "pid").read_text()))


async def test_a_helper_without_the_login_leaves_the_file(docker: Docker) -> None:
    docker.write({"credsStore": "tests", "auths": {HOST: {"auth": "YTpi"}}})
    docker.helper("echo 'credentials not found in native keychain'; exit 1")
    assert await login_for(HOST, docker.env) == RegistryLogin("a", "b")
    docker.helper('echo \'{"Username": "<token>", "Secret": "t"}\'')
    assert await login_for(HOST, docker.env) == RegistryLogin(identity_token="t")


def test_a_login_is_not_printed() -> None:
    assert CANARY not in repr(RegistryLogin("a", CANARY))
