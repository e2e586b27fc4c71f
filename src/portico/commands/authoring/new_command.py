"""`portico new`: a project for a component, which runs, builds and passes its test."""

import shlex
import sys

from portico.commands.authoring.python_templates import python_files
from portico.commands.authoring.scaffold import (
    KINDS,
    Language,
    NewProject,
    check_project,
    with_aligned_comments,
    write_project,
)
from portico.commands.authoring.wasm_templates import (
    javascript_files,
    javascript_needs,
    python_wasm_files,
    python_wasm_needs,
)
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.library.bundles.interfaces import INTERFACES

LANGUAGES = {
    "python": Language("python", python_files),
    "js": Language("portico:mcp", javascript_files, javascript_needs, "npm install"),
    "python-wasm": Language("portico:mcp", python_wasm_files, python_wasm_needs),
}


def main(argv: list[str]) -> int:
    """Write a project, and print how to run it."""
    options = _parser().parse_intermixed_args(argv)
    language = LANGUAGES[options.lang]
    version = options.version or INTERFACES[language.interface][-1]
    project = NewProject(options.name, options.kind, f"{language.interface}@{version}")
    check_project(project, language, options.lang)
    folder = options.output or options.name
    files = dict(language.files(project))
    files["README.md"] = with_aligned_comments(files["README.md"])
    write_project(folder, files, force=options.force)
    screen = Screen(sys.stdout)
    where = shlex.quote(folder)
    screen.print(f"{folder}: a component with {options.kind}; read its README.md")
    if language.first:
        screen.print(f"first run `{language.first}` in {where}")
    served = f"{where} SERVER.py" if options.kind == "middleware" else where
    screen.print(f"serve it with `portico run --watch {served}`")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="portico new",
        description="Make a project for a component: its source, a test that passes, a README and "
        "component.toml, which names its build and its interface.",
        epilog="example: portico new calc --lang python --kind tools",
    )
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the component, and of its folder")
    add("--lang", choices=tuple(LANGUAGES), default="python", help="its language (default: python)")
    add("--kind", choices=KINDS, default="tools", help="its offer (default: tools)")
    what = "version of the interface that it is made for (default: the newest)"
    add("--version", metavar="V", help=what)
    add("-o", "--output", metavar="DIR", help="the folder to write (default: NAME)")
    parser.add_flag("--force", "write into a folder that is not empty")
    return parser
