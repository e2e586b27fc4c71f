"""Which commands install the server that they start."""

import pytest

from portico.upstream.process.install_commands import INSTALL_S, install_of

INSTALLERS = [
    "npx -y @scope/server",
    "/usr/local/bin/npx server",
    "npm exec -- server",
    "npm --silent x server",
    "npm --prefix folder exec server",
    "pnpm dlx server",
    "yarn dlx server",
    "bunx server",
    "bun x server",
    "deno run --allow-net npm:server",
    "uvx server",
    "uv run server.py",
    "uv --directory folder run server.py",
    "uv --directory=folder run server.py",
    "uv tool run server",
    "pipx run server",
    "go run example.com/server@latest",
    "docker run -i --rm image",
    "docker --context far run image",
    "podman run image",
]
OTHERS = [
    "node server.js",
    "python -m server",
    "npm run server",
    "npm start",
    "yarn server",
    "bun server.ts",
    "uv pip list",
    "pipx list",
    "docker exec box server",
    "docker",
    "my-npx server",
    "sh -c npx",
]


@pytest.mark.parametrize("command", INSTALLERS)
def test_an_installer_is_recognised(command: str) -> None:
    install = install_of(command.split())
    assert install is not None
    assert install.within_s == INSTALL_S


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands_install_nothing(command: str) -> None:
    assert install_of(command.split()) is None


def test_a_limit_makes_any_command_an_installer_and_zero_makes_none() -> None:
    found = install_of(["./start.sh"], 60)
    assert found is not None
    assert found.within_s == 60
    assert install_of(["npx", "server"], 0) is None
    assert install_of([]) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("npx -y server --key a", "npx server --key b", True),
        ("docker run image a", "docker run image b", True),
        ("npx server", "npx another", False),
        ("npx server", "bunx server", False),
    ],
)
def test_servers_of_one_package_are_known(one: str, other: str, same: bool) -> None:
    first, second = install_of(one.split()), install_of(other.split())
    assert first is not None
    assert second is not None
    assert (first.package == second.package) is same
