"""An ACP agent that acts as an MCP client of the server it is handed; standard library only.

Its only argument is a JSON object of options: `http` if it supports servers over HTTP; `log`, a
file for its events; `lists`, when it lists the tools: `at once`, `never`, or `gated`, which waits
until someone writes to the named pipe `gate`; `own`, the command and variables of a server in its
own settings, to which it connects once its process starts: each is a hidden process. A prompt is a
JSON array of steps, and the agent's text is the JSON array of their outcomes:

- ["ask", METHOD, PARAMS]: the response to a request at the handed server
- ["handed"]: the entry of the server
- ["tell", PATH]: write that entry to a file
- ["reconnect"]: connect to it again, as a second client
- ["write", PATH, TEXT]: write a file, or to a named pipe
- ["read", PATH]: the text of a file, or of a named pipe once someone has written to it
- ["then", PATH]: the outcomes of further steps, which someone writes to a named pipe
- ["folder"]: the folder of the session
- ["own", METHOD, PARAMS]: the response to a request at the server of its own settings
- ["changed"]: the next notification of that server
- ["hidden", COMMAND, VARIABLES]: the output of a hidden process: with no other variables, in a
  session of its own, and its parent has exited
"""

import http.client
import json
import os
import subprocess
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

Message = dict[str, Any]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"roots": {}},
    "clientInfo": {"name": "mcp-agent", "version": "1"},
}


HIDE = """
import json, os, sys
os.setsid()
if os.fork():
    os._exit(0)
argv, env = json.loads(sys.argv[1])
os.execve(argv[0], argv, env)
"""


def hiding(command: list[str], variables: dict[str, str]) -> list[str]:
    """The command that starts a hidden process."""
    return [sys.executable, "-I", "-S", "-c", HIDE, json.dumps([command, variables])]


class StdioClient:
    """A client of a server that it starts itself."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.ids = 0

    def send(self, message: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Message) -> Message:
        self.ids += 1
        try:
            self.send({"id": self.ids, "method": method, "params": params})
        except BrokenPipeError:
            return self.over()
        return self.answer()

    def answer(self) -> Message:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: Message = json.loads(line)
            if message.get("method") == "roots/list":
                self.send({"id": message["id"], "result": {"roots": [{"uri": "file:///"}]}})
            elif message.get("id") == self.ids and "method" not in message:
                return message
        return self.over()

    def over(self) -> Message:
        """The end of the process: its exit code and what it said."""
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode()
        return {"exit": self.process.wait(), "stderr": said}


class HttpClient:
    """A client of a server over HTTP."""

    def __init__(self, entry: Message) -> None:
        url = urlsplit(entry["url"])
        self.path = url.path
        self.connection = http.client.HTTPConnection(url.hostname or "", url.port or 80)
        self.headers = {pair["name"]: pair["value"] for pair in entry["headers"]}
        self.headers["Content-Type"] = "application/json"
        self.headers["Accept"] = "application/json, text/event-stream"
        self.ids = 0

    def send(self, message: Message) -> list[Message]:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.connection.request("POST", self.path, body, self.headers)
        response = self.connection.getresponse()
        data = response.read()
        if response.status >= 400:
            return [{"status": response.status}]
        if session := response.headers.get("Mcp-Session-Id"):
            self.headers["Mcp-Session-Id"] = session
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            lines = [line[6:] for line in data.splitlines() if line.startswith(b"data: {")]
        else:
            lines = [data] if data else []
        return [json.loads(line) for line in lines]

    def ask(self, method: str, params: Message) -> Message:
        self.ids += 1
        found = self.send({"id": self.ids, "method": method, "params": params})
        return next(one for one in found if "method" not in one)


class McpAgent:
    """Reads requests in the main thread; each turn has a thread of its own."""

    def __init__(self, options: Message) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.entry: Message | None = None
        self.client: StdioClient | HttpClient | None = None
        self.connected = threading.Event()
        self.cwd = ""
        self.own_client: StdioClient | None = None
        if "own" in options:
            self.own_client = StdioClient(hiding(*options["own"]), {})
            self.own_client.ask("initialize", HELLO)
            self.own_client.send({"method": "notifications/initialized"})
            tools = self.own_client.ask("tools/list", {})
            self.note(f"own {[tool['name'] for tool in tools['result']['tools']]}")

    def send(self, message: Message) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def note(self, event: str) -> None:
        if "log" in self.options:
            with open(self.options["log"], "a") as log:
                log.write(f"{event}\n")

    def run(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            act = getattr(self, "on_" + message.get("method", "").replace("/", "_"), None)
            if act is not None:
                act(message)
            elif "id" in message and "method" in message:
                self.reply(message, {})

    def reply(self, message: Message, result: Message) -> None:
        self.send({"id": message["id"], "result": result})

    def on_initialize(self, message: Message) -> None:
        able = {"mcpCapabilities": {"http": bool(self.options.get("http"))}}
        self.reply(message, {"protocolVersion": 1, "agentCapabilities": able, "authMethods": []})

    def on_session_new(self, message: Message) -> None:
        params = message["params"]
        self.cwd = params["cwd"]
        self.entry = next(iter(params["mcpServers"]), None)
        self.note("session")
        if self.entry is not None:
            threading.Thread(target=self.begin, daemon=True).start()
        else:
            self.connected.set()
        self.reply(message, {"sessionId": "s"})

    def on_session_cancel(self, message: Message) -> None:
        os._exit(0)

    def on_session_prompt(self, message: Message) -> None:
        self.note("prompted")
        threading.Thread(target=self.turn, args=(message,), daemon=True).start()

    def begin(self) -> None:
        """Connect to the server, and list its tools when the options say."""
        lists = self.options.get("lists", "at once")
        if lists == "gated":
            self.read(self.options["gate"])
        self.connect()
        if lists != "never":
            assert self.client is not None
            self.note("lists")
            self.client.ask("tools/list", {})
        self.connected.set()

    def connect(self) -> Message:
        assert self.entry is not None
        made: StdioClient | HttpClient
        if "url" in self.entry:
            made = HttpClient(self.entry)
        else:
            env = {pair["name"]: pair["value"] for pair in self.entry["env"]}
            made = StdioClient([self.entry["command"], *self.entry["args"]], env)
        self.client = made
        answer = made.ask("initialize", HELLO)
        if "result" in answer:
            made.send({"method": "notifications/initialized"})
        return answer

    def turn(self, message: Message) -> None:
        try:
            self.connected.wait()
            (block,) = message["params"]["prompt"]
            outcomes = self.steps(json.loads(block["text"]))
        except BaseException:  # noqa: BLE001  (it ends the process in any case)
            sys.excepthook(*sys.exc_info())
            os._exit(70)
        content = {"type": "text", "text": json.dumps(outcomes)}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": message["params"]["sessionId"], "update": update}
        self.send({"method": "session/update", "params": params})
        self.reply(message, {"stopReason": "end_turn"})

    def steps(self, steps: list[Any]) -> list[Any]:
        return [getattr(self, name)(*rest) for name, *rest in steps]

    # The steps of a prompt.

    def ask(self, method: str, params: Message) -> Message | None:
        return None if self.client is None else self.client.ask(method, params)

    def handed(self) -> Message | None:
        return self.entry

    def tell(self, path: str) -> None:
        self.write(path, json.dumps(self.entry))

    def reconnect(self) -> Message:
        return self.connect()

    def write(self, path: str, text: str) -> None:
        with open(path, "w") as file:
            file.write(text)

    def read(self, path: str) -> str:
        with open(path) as file:
            return file.read()

    def then(self, path: str) -> list[Any]:
        return self.steps(json.loads(self.read(path)))

    def folder(self) -> str:
        return self.cwd

    def own(self, method: str, params: Message) -> Message:
        assert self.own_client is not None
        return self.own_client.ask(method, params)

    def changed(self) -> str:
        assert self.own_client is not None
        assert self.own_client.process.stdout is not None
        return str(json.loads(self.own_client.process.stdout.readline())["method"])

    def hidden(self, command: list[str], variables: dict[str, str]) -> str:
        ran = subprocess.run(hiding(command, variables), capture_output=True, check=False)
        return (ran.stdout + ran.stderr).decode()


if __name__ == "__main__":
    McpAgent(json.loads(sys.argv[1])).run()
