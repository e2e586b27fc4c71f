"""A short name and a title for a server's command."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import dropwhile

from portico.core.documents.names import valid_name

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|(?:ba|da|z)?sh")
_UV = "--from --with --python -p --directory --project --index --index-url --extra-index-url"
_VALUED: Mapping[str, str] = {
    "bun": "--cwd -r --preload",
    "bunx": "-p --package",
    "deno": "-c --config --import-map --env-file",
    "docker": """
        -a --add-host -c --cap-add --cap-drop --cpus --device --dns -e --entrypoint --env --env-file
        --expose --gpus --group-add -h --hostname --ip --ipc -l --label --label-file --link -m
        --memory --mount --name --net --network -p --pid --platform --publish --pull --restart
        --runtime --security-opt --shm-size --stop-signal --tmpfs -u --ulimit --user -v --volume
        --volumes-from -w --workdir
    """,
    "node": "-r --require --import --loader --experimental-loader --env-file",
    "npx": "-p --package -c --call",
    "portico": "--handlers --http --name --override --config --shadow --transport --listen",
    "pipx": "--spec --python --index-url --pip-args",
    "uv": f"{_UV} --with-requirements --env-file --group --extra",
    "uvx": _UV,
}
"""The programs that start servers, and their options that take a value: its word is not the
server's name, and may be a secret."""
_VALUED_BY = {name: frozenset(options.split()) for name, options in _VALUED.items()}
_VALUED_BY["podman"] = _VALUED_BY["docker"]
_INTERPRETER_VALUED = frozenset({"-W", "-X"})
_SUBCOMMANDS: Mapping[str, tuple[str, ...]] = {
    "bun": ("exec", "run", "x"),
    "deno": ("run",),
    "docker": ("container", "run"),
    "pipx": ("run",),
    "podman": ("container", "run"),
    "portico": ("run", "serve", "wrap"),
    "uv": ("run", "tool"),
}
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_MAX_TITLE = 60
_GENERIC = frozenset({"__main__", "index", "main"})
_BUILD_FOLDERS = frozenset({"", ".", "..", "bin", "build", "dist", "lib", "out", "src"})
_SUFFIX = re.compile(r"(?<=.)(@[^@]*|[=<>~!]=.*|:[\w.-]+|\.(py|js|mjs|cjs|ts|sh))$")
_PREFIX = re.compile(r"^(mcp[-_]server[-_]|server[-_]|mcp[-_])(?=.)")


def name_of_command(argv: Sequence[str]) -> str:
    """Return a short name for a server's command: `everything` for
    `npx -y @modelcontextprotocol/server-everything`."""
    words = list(argv)
    if os.path.basename(words[0]) == "env":
        rest = dropwhile(lambda one: one[:1] == "-" or _ASSIGNMENT.fullmatch(one), words[1:])
        words = list(rest) or words[:1]
    program = os.path.basename(words[0])
    name = _short(_server_in(program, words) or words[0])
    return valid_name(name or program)


def title_of_command(argv: Sequence[str]) -> str:
    """Return the program of a command and the server that it starts: `npx server-everything`.

    Other arguments are left out, because they may be secrets.
    """
    program = os.path.basename(argv[0])
    title = f"{program} {os.path.basename(_server_in(program, argv))}".rstrip()
    return title if len(title) <= _MAX_TITLE else f"{title[: _MAX_TITLE - 3]}..."


def _server_in(program: str, words: Sequence[str]) -> str:
    """Return the word that names the server, after a program that starts others."""
    is_interpreter = _INTERPRETER.fullmatch(program) is not None
    valued = _INTERPRETER_VALUED if is_interpreter else _VALUED_BY.get(program)
    if valued is None:
        return ""
    rest = iter(words[1:])
    for word in rest:
        if is_interpreter and word == "-c":
            return ""
        if word in valued:
            next(rest, None)
        elif not word.startswith("-") and word not in _SUBCOMMANDS.get(program, ()):
            return word
    return ""


def _short(word: str) -> str:
    """Return a path, package or image without its folders, version and usual prefix."""
    folder, name = os.path.split(word.rstrip("/"))
    name = _SUFFIX.sub("", name)
    while name in _GENERIC and folder:
        folder, parent = os.path.split(folder)
        if parent not in _BUILD_FOLDERS:
            name = parent
    return _PREFIX.sub("", name)
