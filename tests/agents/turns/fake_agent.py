"""A scripted agent that speaks ACP over its standard streams; it needs only the standard library.

Its only argument is a JSON script: options, and under `prompt` the steps of each turn. A step is an
object with one operation, such as {"say": "text"}; the methods `do_...` below are all of them.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

Message = dict[str, Any]

GRANDCHILD = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print(os.getpid(), flush=True)
signal.pause()
"""


class RpcFailure(Exception):
    """An error to answer with."""

    def __init__(self, error: Message) -> None:
        super().__init__(error["message"])
        self.error = error


class FakeAgent:
    """Reads requests in the main thread, and runs each turn in a thread of its own."""

    def __init__(self, script: Message) -> None:
        self.script = script
        self.write_lock = threading.Lock()
        self.answers: dict[int, Message] = {}
        self.arrived = threading.Condition()
        self.last_id = 0
        self.sessions = 0
        self.busy: set[str] = set()
        self.cancelled = threading.Event()
        self.keeps_answers = True
        self.may_read = threading.Event()
        self.may_read.set()
        self.log = open(script["log"], "a") if "log" in script else None  # noqa: SIM115

    def send_raw(self, line: str) -> None:
        with self.write_lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def send(self, message: Message) -> None:
        whole = {"jsonrpc": "2.0", **message}
        self.note("agent", whole)
        self.send_raw(json.dumps(whole))

    def note(self, side: str, message: Any) -> None:
        if self.log is not None:
            self.log.write(json.dumps({"from": side, "message": message}) + "\n")
            self.log.flush()

    def update(self, session: str, update: Message) -> None:
        params = {"sessionId": session, "update": update}
        self.send({"method": "session/update", "params": params})

    def ask(self, method: str, params: Message) -> Message:
        with self.arrived:
            self.last_id += 1
            id = self.last_id
        self.send({"id": id, "method": method, "params": params})
        with self.arrived:
            self.arrived.wait_for(lambda: id in self.answers)
            return self.answers.pop(id)

    def run(self) -> None:
        for line in sys.stdin:
            self.may_read.wait()
            message = json.loads(line)
            self.note("client", message)
            if "method" not in message:
                with self.arrived:
                    self.answers[message["id"]] = self.kept(message)
                    self.arrived.notify_all()
            elif message["method"] == "session/prompt":
                threading.Thread(target=self.turn, args=(message,), daemon=True).start()
            elif message["method"] == "session/cancel":
                self.cancelled.set()
            elif "id" in message:
                self.serve(message)
        if self.script.get("ignore_eof"):
            threading.Event().wait()

    def kept(self, answer: Message) -> Message:
        """Return an answer without its value, if that is to take no memory."""
        return answer if self.keeps_answers else dict.fromkeys(answer)

    def turn(self, message: Message) -> None:
        """Serve a prompt; a mistake in the script ends the agent, which shows it."""
        try:
            self.serve(message)
        except BaseException:  # noqa: BLE001  (it ends the process in any case)
            sys.excepthook(*sys.exc_info())
            os._exit(70)

    def serve(self, message: Message) -> None:
        method = message["method"].replace("/", "_")
        answer = getattr(self, f"on_{method}", None)
        overridden = self.script.get("answers", {}).get(message["method"])
        if overridden == "hang":
            return
        try:
            if overridden is not None:
                result = self.scripted(overridden)
            elif answer is None:
                raise RpcFailure({"code": -32601, "message": f"no {message['method']}"})
            else:
                result = answer(message.get("params") or {})
        except RpcFailure as failure:
            self.send({"id": message["id"], "error": failure.error})
            return
        if result is not None:
            late = result.pop("late", []) if isinstance(result, dict) else []
            self.send({"id": message["id"], "result": result})
            for update in late:
                self.update(message["params"]["sessionId"], update)

    def scripted(self, answer: Any) -> Any:
        """Return a result from the script."""
        if "error" in answer:
            raise RpcFailure(answer["error"])
        return answer.get("result", {})

    def on_initialize(self, params: Message) -> Message:
        return {
            "protocolVersion": self.script.get("version", 1),
            "agentCapabilities": self.script.get("capabilities", {}),
            "agentInfo": {"name": "fake", "title": "Fake Agent", "version": "1.0"},
            "authMethods": self.script.get("auth_methods", []),
        }

    def on_authenticate(self, params: Message) -> Message:
        return {}

    def on_session_new(self, params: Message) -> Message:
        self.sessions += 1
        return {"sessionId": f"session-{self.sessions}"}

    def on_session_resume(self, params: Message) -> Message:
        return {}

    def on_session_load(self, params: Message) -> Message:
        for update in self.script.get("history", []):
            self.update(params["sessionId"], update)
        return {}

    def on_session_close(self, params: Message) -> Message:
        return {}

    def on_session_set_mode(self, params: Message) -> Message:
        return {}

    def on_session_set_config_option(self, params: Message) -> Message:
        return {"configOptions": []}

    def on_session_prompt(self, params: Message) -> Message:
        session = params["sessionId"]
        if session in self.busy:
            raise RpcFailure({"code": -32603, "message": "the session is busy"})
        self.busy.add(session)
        try:
            for step in self.script.get("prompt", [{"say": "done"}]):
                ((name, value), *more) = step.items()
                ended = getattr(self, f"do_{name}")(session, value, **dict(more))
                if ended is not None:
                    return dict(ended)
            if "echo_prompt" in self.script:
                self.do_say(session, json.dumps(params["prompt"]))
            return {"stopReason": "end_turn"}
        finally:
            self.busy.discard(session)

    # The steps of a turn. One that returns a result ends the turn.

    def do_say(self, session: str, text: str, meta: Message | None = None) -> None:
        chunk: Message = {"content": {"type": "text", "text": text}}
        if meta is not None:
            chunk["_meta"] = meta
        self.update(session, {"sessionUpdate": "agent_message_chunk", **chunk})

    def do_update(self, session: str, update: Message, session_id: str = "") -> None:
        self.update(session_id or session, update)

    def do_flood(self, session: str, count: int, text: str = "x", times: int = 1) -> None:
        chunk = {"content": {"type": "text", "text": text * times}}
        update = {"sessionUpdate": "agent_message_chunk", **chunk}
        params = {"sessionId": session, "update": update}
        message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        line = json.dumps(message) + "\n"
        with self.write_lock:
            for _ in range(count):
                sys.stdout.write(line)
            sys.stdout.flush()

    def do_ask(self, session: str, method: str, params: Message | None = None) -> None:
        """Send a request, and say its response."""
        answer = self.ask(method, {"sessionId": session, **(params or {})})
        self.do_say(session, json.dumps(answer.get("result", answer.get("error"))) + "\n")

    def do_ask_many(self, session: str, count: int, method: str, params: Message) -> None:
        """Send many requests at once, and say how many were answered."""
        before = self.last_id
        for _ in range(count):
            self.last_id += 1
            self.send({"id": self.last_id, "method": method, "params": params})
        with self.arrived:
            self.arrived.wait_for(lambda: sum(id > before for id in self.answers) == count)
        self.do_say(session, f"{count} answered")

    def do_flood_requests(
        self, session: str, limit: int, method: str, params: Message, *, withdraws: bool = False
    ) -> None:
        """Send requests and read nothing until they are no longer read either; then read all."""
        before = self.last_id
        self.keeps_answers = False
        self.may_read.clear()
        while self.last_id - before < limit and self.is_read():
            self.last_id += 1
            whole = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
            line = json.dumps(whole) + "\n"
            if withdraws:
                cancel = {"method": "$/cancel_request", "params": {"requestId": self.last_id}}
                line += json.dumps({"jsonrpc": "2.0", **cancel}) + "\n"
            os.write(1, line.encode())
        count = self.last_id - before
        self.may_read.set()
        with self.arrived:
            self.arrived.wait_for(lambda: len(self.answers) == count)
        results = sum("result" in answer for answer in self.answers.values())
        self.do_say(session, json.dumps([count, results]))

    def is_read(self) -> bool:
        """False once our output has been full for long, and else there is room for 4,096 bytes."""
        return bool(select.select([], [1], [], 2.0)[1])

    def do_take_back(self, session: str, method: str, params: Message) -> None:
        """Send a request, cancel it, and say its response."""
        self.last_id += 1
        id = self.last_id
        self.send({"id": id, "method": method, "params": {"sessionId": session, **params}})
        self.send({"method": "$/cancel_request", "params": {"requestId": id}})
        with self.arrived:
            self.arrived.wait_for(lambda: id in self.answers)
            answer = self.answers.pop(id)
        self.do_say(session, json.dumps(answer.get("error", answer.get("result"))))

    def do_terminal(self, session: str, command: str, args: list[str]) -> None:
        """Run a command in a terminal to its end, and say its output."""
        created = self.ask(
            "terminal/create", {"sessionId": session, "command": command, "args": args}
        )
        params = {"sessionId": session, **created["result"]}
        exited = self.ask("terminal/wait_for_exit", params)["result"]
        output = self.ask("terminal/output", params)["result"]
        self.ask("terminal/kill", params)
        self.ask("terminal/release", params)
        gone = self.ask("terminal/output", params)
        self.do_say(session, json.dumps([exited, output, gone["error"]["code"]]))

    def do_raw(self, session: str, line: str, times: int = 1, padding: int = 0) -> None:
        for _ in range(times):
            self.send_raw(line + " " * padding)

    def do_endless(self, session: str, _: bool) -> None:
        """Write one line that never ends."""
        piece = "x" * (1 << 20)
        while True:
            sys.stdout.write(piece)

    def do_stderr(self, session: str, size: int, line: str = "noise") -> None:
        sys.stderr.write((line + "\n") * (size // (len(line) + 1) + 1))
        sys.stderr.flush()

    def do_env(self, session: str, names: list[str]) -> None:
        self.do_say(session, json.dumps({name: os.environ.get(name) for name in names}))

    def do_cwd(self, session: str, _: bool) -> None:
        self.do_say(session, str(Path.cwd()))

    def do_grandchild(self, session: str, pid_file: str) -> None:
        """Start a process that ignores all polite signals, and write its pid to a file."""
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", GRANDCHILD], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        Path(pid_file).write_text(child.stdout.readline())

    def do_shell(self, session: str, command: str) -> None:
        """Run a command in the agent's folder, as real agents do."""
        subprocess.run(["/bin/sh", "-ec", command], check=True, stdin=subprocess.DEVNULL, stdout=2)

    def do_touch(self, session: str, path: str) -> None:
        Path(path).touch()

    def do_pause(self, session: str, seconds: float) -> None:
        threading.Event().wait(seconds)

    def do_pass(self, session: str, gate: str) -> None:
        """Wait until someone opens the gate, a named pipe, to write; say what is written."""
        self.do_say(session, Path(gate).read_text())

    def do_wait_for_cancel(self, session: str, _: bool, **more: Any) -> Message:
        self.cancelled.wait()
        return {"stopReason": "cancelled", **more}

    def do_hang(self, session: str, _: bool) -> None:
        threading.Event().wait()

    def do_exit(self, session: str, code: int) -> None:
        sys.stdout.flush()
        os._exit(code)

    def do_crash(self, session: str, _: bool) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()

    def do_stop(self, session: str, reason: str, **more: Any) -> Message:
        return {"stopReason": reason, **more}

    def do_fail(self, session: str, error: Message) -> None:
        raise RpcFailure(error)


def main() -> None:
    """Run the script."""
    script = json.loads(sys.argv[1])
    if script.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in script.get("first", []):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    if "pid_file" in script:
        Path(script["pid_file"]).write_text(str(os.getpid()))
    sys.stderr.write(script.get("why", ""))
    sys.stderr.flush()
    if "exit_at_once" in script:
        sys.exit(script["exit_at_once"])
    FakeAgent(script).run()


if __name__ == "__main__":
    main()
