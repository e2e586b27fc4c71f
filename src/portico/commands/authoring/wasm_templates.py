"""The files of a new component that is compiled to WebAssembly, from JavaScript or Python."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from portico.commands.authoring.scaffold import NewProject

_JCO = "1.35.0"
_COMPONENTIZE = "0.25.1"
_WORLDS = {
    "tools": "include host;\n  export tools-capability;",
    "resources": "include host;\n  export resources-capability;",
    "prompts": "include host;\n  export prompts-capability;",
    "middleware": "include middleware;",
}
_WORLD = """package portico:mcp@VERSION;

/// The imports and exports of this component.
world component {
  WORLD
}
"""
_JAVASCRIPT = {
    "tools": """// The tools of NAME. Arguments and results are JSON objects of MCP.
const tools = [
  {
    name: "welcome",
    description: "Welcome a person by name.",
    inputSchema: {
      type: "object",
      properties: { name: { type: "string" } },
      required: ["name"],
    },
  },
];

export const toolsCapability = {
  listTools: () => JSON.stringify({ tools }),
  callTool(name, args) {
    if (name !== "welcome") return "null"; // a tool of another component
    const text = `Welcome, ${JSON.parse(args).name}!`;
    return JSON.stringify({ content: [{ type: "text", text }] });
  },
};
""",
    "resources": """// The resources of NAME. Results are JSON objects of MCP.
const PEOPLE = "NAME://people/";
const resources = [{ uri: "NAME://all", name: "everyone", description: "A welcome." }];
const resourceTemplates = [
  { uriTemplate: `${PEOPLE}{name}`, name: "person", description: "A welcome for one person." },
];

function text(uri) {
  if (uri === "NAME://all") return "Welcome!";
  return uri.startsWith(PEOPLE) ? `Welcome, ${uri.slice(PEOPLE.length)}!` : null;
}

export const resourcesCapability = {
  listResources: () => JSON.stringify({ resources }),
  listResourceTemplates: () => JSON.stringify({ resourceTemplates }),
  readResource(uri) {
    const found = text(uri);
    return JSON.stringify(found === null ? null : { contents: [{ uri, text: found }] });
  },
};
""",
    "prompts": """// The prompts of NAME. Arguments and results are JSON objects of MCP.
const prompts = [
  {
    name: "introduction",
    description: "Introduce a person.",
    arguments: [{ name: "name", required: true }],
  },
];

export const promptsCapability = {
  listPrompts: () => JSON.stringify({ prompts }),
  getPrompt(name, args) {
    if (name !== "introduction") return "null"; // a prompt of another component
    const text = `Introduce ${JSON.parse(args).name} in one sentence.`;
    return JSON.stringify({ messages: [{ role: "user", content: { type: "text", text } }] });
  },
};
""",
    "middleware": """// Middleware: it handles every request to the components after it.
import { handle as next } from "portico:mcp/handler@VERSION";

export const handler = {
  handle(request) {
    const { id, method, params } = JSON.parse(request);
    if (method === "tools/call" && JSON.stringify(params.arguments).includes("PRIVATE KEY")) {
      const content = [{ type: "text", text: "private keys stay on this machine" }];
      return JSON.stringify({ jsonrpc: "2.0", id, result: { content, isError: true } });
    }
    return next(request);
  },
};
""",
}
_NODE_TESTS = {
    "tools": """import { toolsCapability } from "./app.js";

test("the name is in it", () => {
  const { content } = JSON.parse(toolsCapability.callTool("welcome", '{"name": "Ada"}'));
  assert.equal(content[0].text, "Welcome, Ada!");
});
""",
    "resources": """import { resourcesCapability } from "./app.js";

test("a person is welcome", () => {
  const { contents } = JSON.parse(resourcesCapability.readResource("NAME://people/Ada"));
  assert.equal(contents[0].text, "Welcome, Ada!");
});
""",
    "prompts": """import { promptsCapability } from "./app.js";

test("the prompt names the person", () => {
  const { messages } = JSON.parse(promptsCapability.getPrompt("introduction", '{"name": "Ada"}'));
  assert.match(messages[0].content.text, /Ada/);
});
""",
    "middleware": """import { register } from "node:module";

// Portico provides the next handler; here it returns the request.
const next = "data:text/javascript,export const handle = (request) => request;";
const hooks = `export const resolve = (name, context, other) =>
  name.startsWith("portico:") ? { url: ${JSON.stringify(next)}, shortCircuit: true }
    : other(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
const { handler } = await import("./app.js");

const call = (text) =>
  JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { arguments: { text } } });

test("only private keys are refused", () => {
  assert.equal(handler.handle(call("hi")), call("hi"));
  assert.ok(JSON.parse(handler.handle(call("PRIVATE KEY"))).result.isError);
});
""",
}
_NODE_HEAD = """// Run with `npm test`.
import assert from "node:assert/strict";
import test from "node:test";

"""
_PACKAGE = """{
  "name": "NAME",
  "version": "0.1.0",
  "private": true,
  "type": "module",
  "scripts": {
    "build": "jco componentize app.js --wit wit -n component OPTIONS -o NAME.wasm",
    "test": "node --test"
  },
  "devDependencies": {
    "@bytecodealliance/jco": "JCO"
  }
}
"""
_OPTIONS = "--backend quickjs --backend-qjs-stub-wasi --backend-qjs-disable-async"
_PYTHON = {
    "tools": '''"""The tools of NAME. Arguments and results are JSON objects of MCP."""

import json

import wit_world.exports

from logic import welcome

TOOL = {
    "name": "welcome",
    "description": "Welcome a person by name.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
}


class ToolsCapability(wit_world.exports.ToolsCapability):
    def list_tools(self) -> str:
        return json.dumps({"tools": [TOOL]})

    def call_tool(self, name: str, arguments: str) -> str:
        if name != "welcome":
            return "null"  # a tool of another component
        text = welcome(json.loads(arguments)["name"])
        return json.dumps({"content": [{"type": "text", "text": text}]})
''',
    "resources": '''"""The resources of NAME. Results are JSON objects of MCP."""

import json

import wit_world.exports

from logic import welcome

PEOPLE = "NAME://people/"
RESOURCE = {"uri": "NAME://all", "name": "everyone", "description": "A welcome."}
TEMPLATE = {"uriTemplate": PEOPLE + "{name}", "name": "person", "description": "A welcome."}


class ResourcesCapability(wit_world.exports.ResourcesCapability):
    def list_resources(self) -> str:
        return json.dumps({"resources": [RESOURCE]})

    def list_resource_templates(self) -> str:
        return json.dumps({"resourceTemplates": [TEMPLATE]})

    def read_resource(self, uri: str) -> str:
        if uri == RESOURCE["uri"]:
            text = welcome("all")
        elif uri.startswith(PEOPLE):
            text = welcome(uri[len(PEOPLE) :])
        else:
            return "null"  # a resource of another component
        return json.dumps({"contents": [{"uri": uri, "text": text}]})
''',
    "prompts": '''"""The prompts of NAME. Arguments and results are JSON objects of MCP."""

import json

import wit_world.exports

from logic import introduction

PROMPT = {
    "name": "introduction",
    "description": "Introduce a person.",
    "arguments": [{"name": "name", "required": True}],
}


class PromptsCapability(wit_world.exports.PromptsCapability):
    def list_prompts(self) -> str:
        return json.dumps({"prompts": [PROMPT]})

    def get_prompt(self, name: str, arguments: str) -> str:
        if name != "introduction":
            return "null"  # a prompt of another component
        content = {"type": "text", "text": introduction(json.loads(arguments)["name"])}
        return json.dumps({"messages": [{"role": "user", "content": content}]})
''',
    "middleware": '''"""Middleware: it handles every request to the components after it."""

import json

import wit_world.exports
from wit_world.imports import handler

from logic import is_refused


class Handler(wit_world.exports.Handler):
    def handle(self, request: str) -> str:
        given = json.loads(request)
        if not is_refused(given):
            return handler.handle(request)
        content = [{"type": "text", "text": "private keys stay on this machine"}]
        result = {"content": content, "isError": True}
        return json.dumps({"jsonrpc": "2.0", "id": given["id"], "result": result})
''',
}
_LOGIC = {
    "tools": '''"""What the component does, without its interface: it runs anywhere."""


def welcome(name: str) -> str:
    return f"Welcome, {name}!"
''',
    "prompts": '''"""What the component does, without its interface: it runs anywhere."""


def introduction(name: str) -> str:
    return f"Introduce {name} in one sentence."
''',
    "middleware": '''"""What the component does, without its interface: it runs anywhere."""

import json


def is_refused(request: dict) -> bool:
    if request.get("method") != "tools/call":
        return False
    return "PRIVATE KEY" in json.dumps(request["params"].get("arguments"))
''',
}
_LOGIC["resources"] = _LOGIC["tools"]
_CHECKS = {
    "tools": 'self.assertEqual(logic.welcome("Ada"), "Welcome, Ada!")',
    "resources": 'self.assertEqual(logic.welcome("Ada"), "Welcome, Ada!")',
    "prompts": 'self.assertIn("Ada", logic.introduction("Ada"))',
    "middleware": 'self.assertFalse(logic.is_refused({"method": "tools/list"}))',
}
_PYTHON_TEST = '''"""Run with `python -m unittest`."""

import unittest

import logic


class Logic(unittest.TestCase):
    def test_it(self) -> None:
        CHECK
'''
_README = """# NAME

A component of Portico: KIND, in LANGUAGE, compiled to WebAssembly. It runs in a sandbox, and may
use nothing but what it is granted. It was made for the interface INTERFACE, which is in `wit/`.

```
STEPS
portico inspect NAME.wasm                    # show what it offers
portico run --watch SERVED # serve it over stdio, and build it when you save
portico compose . -o NAME.portico            # write it to one file that runs elsewhere
```

`component.toml` names the build, its sources and the interface.
"""
_PROJECT = """component = "NAME.wasm"
interface = "INTERFACE"
build = BUILD
sources = SOURCES
"""


def javascript_files(project: NewProject) -> Mapping[str, str]:
    """Return the files of a project in JavaScript."""
    steps = (
        "npm install                                  # once: the compiler\n"
        "npm run build                                # writes NAME.wasm\n"
        "npm test                                     # test it"
    )
    files = {
        "app.js": _JAVASCRIPT[project.kind],
        "app.test.js": _NODE_HEAD + _NODE_TESTS[project.kind],
        "package.json": _PACKAGE.replace("OPTIONS", _OPTIONS).replace("JCO", _JCO),
        "component.toml": _PROJECT.replace("BUILD", '["npm", "run", "--silent", "build"]').replace(
            "SOURCES", '["app.js", "wit/*.wit"]'
        ),
        "README.md": _README.replace("STEPS", steps).replace("LANGUAGE", "JavaScript"),
        ".gitignore": "node_modules/\n",
    }
    return _filled(project, files)


def python_wasm_files(project: NewProject) -> Mapping[str, str]:
    """Return the files of a project in Python that is compiled."""
    command = "componentize-py -d wit -w component componentize --stub-wasi app -o NAME.wasm"
    words = ", ".join(f'"{word}"' for word in command.split())
    steps = (
        f"pip install componentize-py=={_COMPONENTIZE}          # once: the compiler\n"
        f"{command}\n"
        "python -m unittest                           # test it"
    )
    files = {
        "app.py": _PYTHON[project.kind],
        "logic.py": _LOGIC[project.kind],
        "test_logic.py": _PYTHON_TEST.replace("CHECK", _CHECKS[project.kind]),
        "component.toml": _PROJECT.replace("BUILD", f"[{words}]").replace(
            "SOURCES", '["app.py", "logic.py", "wit/*.wit"]'
        ),
        "README.md": _README.replace("STEPS", steps).replace("LANGUAGE", "Python"),
    }
    return _filled(project, files)


def _filled(project: NewProject, files: Mapping[str, str]) -> Mapping[str, str]:
    version = project.interface.rpartition("@")[2]
    known = {
        "INTERFACE": project.interface,
        "VERSION": version,
        "NAME": project.name,
        "KIND": project.kind,
        # The column of the comments, after `portico run --watch `.
        "SERVED": (". SERVER.py" if project.kind == "middleware" else ".").ljust(24),
    }
    found = {**files, "wit/component.wit": _WORLD.replace("WORLD", _WORLDS[project.kind])}
    for word, value in known.items():
        found = {path: text.replace(word, value) for path, text in found.items()}
    return {**found, "wit/mcp.wit": _own_wit()}


def _own_wit() -> str:
    import portico.library.wasm

    folder = os.path.dirname(portico.library.wasm.__file__)
    with open(os.path.join(folder, "wit", "mcp.wit"), encoding="utf-8") as file:
        return file.read()


def javascript_needs() -> str:
    """Return what is missing for JavaScript."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)}, which is not found; install Node.js 22 or later"
    return _runtime()


def python_wasm_needs() -> str:
    """Return what is missing for Python that is compiled."""
    beside = os.path.join(os.path.dirname(sys.executable), "componentize-py")
    if shutil.which("componentize-py") is None and not os.path.exists(beside):
        return (
            "componentize-py, which is not found; "
            f"run `pip install componentize-py=={_COMPONENTIZE}`"
        )
    return _runtime()


def _runtime() -> str:
    if find_spec("wasmtime") is None:
        return "wasmtime, which is not installed; run `pip install 'portico[wasm]'`"
    return ""
