"""The files of a new component in plain Python."""

from collections.abc import Mapping

from portico.commands.authoring.scaffold import NewProject

_SOURCES = {
    "tools": '''"""The tools of NAME."""

from portico import Server

server = Server("NAME", version="0.1.0")


@server.tool
def welcome(name: str) -> str:
    """Welcome a person by name."""
    return f"Welcome, {name}!"
''',
    "resources": '''"""The resources of NAME."""

from portico import Server

server = Server("NAME", version="0.1.0")


@server.resource("NAME://all")
def everyone() -> str:
    """A welcome."""
    return "Welcome!"


@server.resource("NAME://people/{name}")
def person(name: str) -> str:
    """A welcome for one person."""
    return f"Welcome, {name}!"
''',
    "prompts": '''"""The prompts of NAME."""

from portico import Server

server = Server("NAME", version="0.1.0")


@server.prompt
def introduction(name: str) -> str:
    """Introduce a person."""
    return f"Introduce {name} in one sentence."
''',
    "middleware": '''"""Middleware: it sees every call of the components after it."""

from portico import ToolError


def on_call(call, next):
    """Refuse calls with a private key in their arguments."""
    if "PRIVATE KEY" in str(call.arguments):
        raise ToolError("private keys stay on this machine")
    return next(call)
''',
}
_HEAD = '''"""Run with `python -m unittest`."""

import unittest

'''
_TESTS = {
    "tools": """import MODULE


class Welcoming(unittest.IsolatedAsyncioTestCase):
    async def test_the_name_is_in_it(self):
        async with MODULE.server.test_client() as client:
            result = await client.call_tool("welcome", {"name": "Ada"})
            self.assertEqual(result.text, "Welcome, Ada!")
""",
    "resources": """import MODULE


class Reading(unittest.IsolatedAsyncioTestCase):
    async def test_a_person_is_welcome(self):
        async with MODULE.server.test_client() as client:
            [found] = await client.read_resource("NAME://people/Ada")
            self.assertEqual(found.body, "Welcome, Ada!")
""",
    "prompts": """import MODULE


class Prompting(unittest.IsolatedAsyncioTestCase):
    async def test_the_prompt_names_the_person(self):
        async with MODULE.server.test_client() as client:
            prompt = await client.get_prompt("introduction", {"name": "Ada"})
            self.assertIn("Ada", prompt.text)
""",
    "middleware": '''import MODULE
from portico import Server, hooks

server = Server("behind")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


class Guarding(unittest.IsolatedAsyncioTestCase):
    async def test_only_private_keys_are_refused(self):
        async with server.test_client(links=[hooks(on_call=MODULE.on_call)]) as client:
            self.assertEqual((await client.call_tool("echo", {"text": "hi"})).text, "hi")
            refused = await client.call_tool("echo", {"text": "PRIVATE KEY"})
            self.assertTrue(refused.is_error)
''',
}
_RUN = {
    "tools": 'portico call MODULE.py welcome \'{"name": "Ada"}\'    # call its tool once',
    "resources": "portico inspect MODULE.py                  # show what it offers",
    "prompts": "portico inspect MODULE.py                  # show what it offers",
    "middleware": "portico inspect MODULE.py                  # show what it is",
}
_SERVE = {"middleware": "MODULE.py SERVER.py"}
_README = """# NAME

A component of Portico: KIND, in Python. It was made for the interface INTERFACE.

```
python -m unittest                         # test it
RUN
portico run --watch SERVED     # serve it over stdio, and reload it when you save
portico compose MODULE.py -o NAME.portico  # write it to one file that runs elsewhere
```

`python` is the one that has Portico. `component.toml` names the interface, and under `files` any
further files that it reads.
"""
_PROJECT = """component = "MODULE.py"
interface = "INTERFACE"
# files = ["data/*.json"]    # files that it reads when it runs, for `portico compose`
"""


def python_files(project: NewProject) -> Mapping[str, str]:
    """Return the files of a project in plain Python; it needs no build."""
    kind, module = project.kind, project.module

    def filled(text: str) -> str:
        known = {"MODULE": module, "NAME": project.name, "INTERFACE": project.interface}
        for word, value in {**known, "KIND": kind}.items():
            text = text.replace(word, value)
        return text

    readme = _README.replace("RUN\n", f"{_RUN[kind]}\n")
    readme = readme.replace("SERVED", _SERVE.get(kind, "MODULE.py"))
    return {
        f"{module}.py": filled(_SOURCES[kind]),
        f"test_{module}.py": filled(_HEAD + _TESTS[kind]),
        "component.toml": filled(_PROJECT),
        "README.md": filled(readme),
    }
