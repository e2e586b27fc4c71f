"""A server.json of the registry becomes a config entry, or an error that says where it is wrong."""

from typing import Any

import pytest

from portico.commands.published.server_json import ways_in
from portico.commands.published.settings import PublishedError

ENV = {"name": "API_KEY", "isRequired": True, "isSecret": True}
NPM = {"registryType": "npm", "identifier": "@acme/weather", "version": "1.2.3"}


def server(**more: Any) -> dict[str, Any]:
    return {"name": "com.acme/weather", "version": "1.2.3", **more}


def entry(data: Any, given: dict[str, tuple[str, ...]] | None = None) -> dict[str, Any]:
    return ways_in(data)[0].entry(given or {})


@pytest.mark.parametrize(
    ("package", "argv"),
    [
        (NPM, ["npx", "-y", "@acme/weather@1.2.3"]),
        (
            {"registryType": "pypi", "identifier": "weather", "version": "2.0"},
            ["uvx", "weather@2.0"],
        ),
        (
            {
                "registryType": "nuget",
                "identifier": "Acme.Weather",
                "version": "1.0.0-beta",
                "runtimeHint": "dnx",
            },
            ["dnx", "Acme.Weather@1.0.0-beta", "--yes"],
        ),
        (
            {
                "registryType": "nuget",
                "identifier": "Acme.Weather",
                "runtimeArguments": [{"type": "named", "name": "--prerelease", "value": ""}],
                "packageArguments": [{"type": "positional", "value": "serve"}],
            },
            ["dnx", "Acme.Weather", "--yes", "--prerelease", "--", "serve"],
        ),
        (
            {"registryType": "oci", "identifier": "ghcr.io/acme/weather:1", "version": "1"},
            ["docker", "run", "-i", "--rm", "ghcr.io/acme/weather:1"],
        ),
        (
            {"registryType": "oci", "identifier": "localhost:5000/weather", "version": "2"},
            ["docker", "run", "-i", "--rm", "localhost:5000/weather:2"],
        ),
    ],
)
def test_a_package_runs_with_the_command_of_its_registry(
    package: dict[str, Any], argv: list[str]
) -> None:
    found = entry(server(packages=[package]))
    assert [found["command"], *found["args"]] == argv


def test_arguments_keep_their_order_and_take_fixed_given_and_default_values() -> None:
    cache = {"type": "named", "name": "--cache", "value": "/tmp/{user}"}
    package = {
        **NPM,
        "runtimeArguments": [{**cache, "variables": {"user": {"default": "ada"}}}],
        "packageArguments": [
            {"type": "positional", "value": "serve"},
            {"type": "named", "name": "--units", "default": "metric"},
            {"type": "named", "name": "--city", "isRepeated": True},
            {"type": "named", "name": "--unset"},
            {"type": "positional", "valueHint": "folder", "isRequired": True},
        ],
    }
    given = {"city": ("Oslo", "Lagos"), "folder": ("/data",)}
    assert entry(server(packages=[package]), given)["args"] == [
        *("-y", "--cache", "/tmp/ada", "@acme/weather@1.2.3", "serve", "--units", "metric"),
        *("--city", "Oslo", "--city", "Lagos", "/data"),
    ]


def test_variables_of_a_container_are_passed_on_by_their_names() -> None:
    image = {"registryType": "oci", "identifier": "acme/weather:1", "environmentVariables": [ENV]}
    found = entry(server(packages=[image]), {"API_KEY": ("${API_KEY}",)})
    assert found["args"] == ["run", "-i", "--rm", "-e", "API_KEY", "acme/weather:1"]
    assert found["env"] == {"API_KEY": "${API_KEY}"}


def test_a_remote_gets_its_headers_and_variables() -> None:
    token = {"token": {"isSecret": True, "isRequired": True}}
    remote = {
        "type": "streamable-http",
        "url": "https://{region}.acme.test/mcp",
        "variables": {"region": {"default": "eu", "choices": ["eu", "us"]}},
        "headers": [{"name": "Authorization", "value": "Bearer {token}", "variables": token}],
    }
    assert entry(server(remotes=[remote]), {"token": ("${ACME_TOKEN}",)}) == {
        "url": "https://eu.acme.test/mcp",
        "type": "http",
        "headers": {"Authorization": "Bearer ${ACME_TOKEN}"},
    }


def test_an_answer_of_the_registry_is_read_like_the_file() -> None:
    assert ways_in({"server": server(packages=[NPM]), "_meta": {}})[0].title == (
        "com.acme/weather 1.2.3"
    )


@pytest.mark.parametrize("stolen", ["${AWS_KEY}", "file:/etc/passwd", "keyring:github", "${"])
@pytest.mark.parametrize("where", ["argument", "default", "variable", "environment"])
def test_a_publisher_cannot_read_what_the_config_may_refer_to(stolen: str, where: str) -> None:
    argument: dict[str, Any] = {"type": "positional", "valueHint": "x"}
    if where == "variable":
        argument |= {"value": "{v}", "variables": {"v": {"default": stolen}}}
    else:
        argument["default" if where == "default" else "value"] = stolen
    package: dict[str, Any] = {**NPM, "packageArguments": [argument]}
    if where == "environment":
        package = {**NPM, "environmentVariables": [{"name": "X", "value": stolen}]}
    with pytest.raises(PublishedError, match="would read a variable, file or keyring entry"):
        entry(server(packages=[package]))


def test_a_reference_cannot_be_put_together_around_a_value_that_a_person_gives() -> None:
    argument = {"type": "positional", "value": "${{v}}", "variables": {"v": {}}}
    with pytest.raises(PublishedError, match="would read"):
        entry(server(packages=[{**NPM, "packageArguments": [argument]}]), {"v": ("HOME",)})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "server.json must be an object"),
        ({}, "name must be a non-empty string"),
        ({"name": 7}, "name must be a non-empty string"),
        (server(), "has neither packages nor remotes"),
        (server(packages={}), "packages must be an array"),
        (server(packages=[1]), r"packages\[0\] must be an object"),
        (server(packages=[{}]), r"packages\[0\]\.registryType must be"),
        (server(packages=[{"registryType": "npm"}]), r"packages\[0\]\.identifier must be"),
        (server(packages=[{**NPM, "identifier": "--call=sh"}]), "is not the name of a package"),
        (server(packages=[{**NPM, "identifier": "a b"}]), "is not the name of a package"),
        (server(packages=[{**NPM, "version": "1 --evil"}]), "is not a version"),
        (server(packages=[{**NPM, "runtimeHint": "sh"}]), "runtimeHint .* is not supported"),
        (server(packages=[{**NPM, "registryType": "cargo"}]), "can only be reached by .*cargo"),
        (server(packages=[{**NPM, "transport": {"type": "sse"}}]), "npm over sse"),
        (server(packages=[{**NPM, "packageArguments": 1}]), "packageArguments must be an array"),
        (server(packages=[{**NPM, "packageArguments": [{"type": "x"}]}]), r"\.name must be"),
        (server(packages=[{**NPM, "environmentVariables": [{}]}]), r"\[0\]\.name must be"),
        (server(packages=[{**NPM, "environmentVariables": [ENV, ENV]}]), "is set twice"),
        (server(packages=[{"registryType": "mcpb", "identifier": "https://x"}]), "fileSha256"),
        (server(remotes=[{"type": "carrier"}]), "can only be reached by .*carrier"),
        (server(remotes=[{"type": "sse"}]), r"remotes\[0\]\.url must be"),
        (server(packages=[{**NPM, "identifier": "a\x1b[2J"}]), "control characters"),
    ],
)
def test_a_malformed_description_is_explained(data: Any, said: str) -> None:
    with pytest.raises(PublishedError, match=said):
        entry(data)


def test_an_argument_of_an_unknown_type_is_explained() -> None:
    package = {**NPM, "packageArguments": [{"type": "x", "name": "y", "value": "z"}]}
    with pytest.raises(PublishedError, match="must be positional or named"):
        entry(server(packages=[package]))
