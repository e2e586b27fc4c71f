"""A middleware component without a component: the worker's end of its protocol, in many moods.

    python handler_rig.py MOOD ...

Each mood changes what it does with calls of the tool `echo`, or with lists.
"""

import json
import sys
import threading
from queue import Queue
from typing import Any

Message = dict[str, Any]
EXTRA = {"name": "extra", "description": "Added.", "inputSchema": {"type": "object"}}


class Rig:
    """One process: reads requests, and answers each in a thread of its own."""

    def __init__(self, moods: set[str]) -> None:
        self.moods = moods
        self.waiting: dict[str, Queue[Message]] = {}
        self.lock = threading.Lock()
        self.count = 0

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            message["raw"] = line
            if "method" not in message:
                self.waiting[message["id"]].put(message)
            elif message["method"] == "portico/ready":
                self.say({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            elif message["method"] == "portico/handle":
                threading.Thread(target=self.handle, args=(message,), daemon=True).start()

    def say(self, message: Any) -> None:
        with self.lock:
            text = message if isinstance(message, str) else json.dumps(message)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def ask(self, method: str, params: Message) -> Message:
        self.count += 1
        id = f"q{self.count}"
        answers: Queue[Message] = Queue()
        self.waiting[id] = answers
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return answers.get()

    def next(self, call: str, request: Message) -> Message:
        answer = self.ask("portico/next", {"call": call, "request": request})
        if "error" in answer:
            return {"jsonrpc": "2.0", "id": request["id"], "error": answer["error"]}
        response: Message = answer["result"]["response"]
        return response

    def handle(self, message: Message) -> None:
        call, request = message["params"]["call"], message["params"]["request"]
        done = {"jsonrpc": "2.0", "id": message["id"]}
        if request["method"].endswith("/list"):
            self.say({**done, "result": {"response": self.listed(call, request)}})
            return
        if "raw" in self.moods:
            self.pass_on(message["raw"], call, message["id"])
            return
        response = self.called(call, request)
        if "not-json" in self.moods:
            self.say(
                f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{{"response":"x"}}}}'
            )
            return
        if "bad-line" in self.moods:
            self.say("this is not JSON-RPC at all")
        self.say({**done, "result": {"response": response}})
        if "twice" in self.moods:
            self.say({**done, "result": {"response": {**response, "result": {"second": True}}}})
        if "late" in self.moods:
            late = self.ask("portico/next", {"call": call, "request": request})
            sys.stderr.write(f"{late}\n")
            sys.stderr.flush()

    def pass_on(self, line: bytes, call: str, id: Any) -> None:
        """Pass on the request and its response without reading them."""
        request = line[line.index(b'"request":') + 10 : line.rindex(b"}}")].decode()
        self.count += 1
        asked = f"q{self.count}"
        answers: Queue[Message] = Queue()
        self.waiting[asked] = answers
        params = f'{{"call":"{call}","request":{request}}}'
        self.say(f'{{"jsonrpc":"2.0","id":"{asked}","method":"portico/next","params":{params}}}')
        answer = answers.get()["raw"]
        result = answer[answer.index(b'"result":') + 9 : answer.rindex(b"}")].decode()
        self.say(f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"result":{result}}}')

    def listed(self, call: str, request: Message) -> Message:
        response = self.next(call, request)
        if "lists-fail" in self.moods:
            return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": "no"}}
        if request["method"] == "tools/list" and "result" in response:
            tools = response["result"]["tools"]
            if "hide" in self.moods:
                tools = [tool for tool in tools if tool["name"] != "secret"]
            if "add" in self.moods:
                tools = [*tools, EXTRA]
            if "shadow" in self.moods:
                shadow = {**EXTRA, "name": "echo", "description": "Another echo."}
                tools = [shadow if tool["name"] == "echo" else tool for tool in tools]
            response["result"]["tools"] = tools
        return response

    def called(self, call: str, request: Message) -> Message:
        moods, params = self.moods, request["params"]
        id, name = request["id"], params.get("name", "")
        if "never" in moods and name == "echo":
            threading.Event().wait()
        if "exit" in moods and name == "echo":
            sys.stderr.write("the component is gone\n")
            sys.stderr.flush()
            import os

            os._exit(7)
        if "refuse" in moods and name == "echo":
            return {"jsonrpc": "2.0", "id": id, "error": {"code": -31000, "message": "refused"}}
        if "ask" in moods and name == "echo":
            form = {"type": "object", "properties": {}}
            question = {"message": "Really?", "requestedSchema": form}
            asked = {"call": call, "method": "elicitation/create", "params": question}
            answer = self.ask("portico/ask", asked)
            if answer.get("result", {}).get("action") != "accept":
                words = json.dumps(answer.get("error", answer.get("result")))
                return {"jsonrpc": "2.0", "id": id, "error": {"code": -31001, "message": words}}
        if "tell" in moods:
            for what, told in (
                ("progress", {"progress": 1, "total": 2, "message": "half"}),
                ("log", {"level": "warning", "data": "careful", "logger": "rig"}),
                ("updated", {"uri": "note:one"}),
            ):
                self.ask("portico/tell", {"call": call, "what": what, "params": told})
        if name == "grow":
            self.moods.add("add")
            self.ask("portico/tell", {"call": call, "what": "changed", "params": {"kind": "tools"}})
        if ("shadow" in moods and name == "echo") or ("add" in moods and name == "extra"):
            texts = []
            for city in ("a", "b", "c"):
                inner = {**params, "name": "echo", "arguments": {"text": city}}
                answered = self.next(call, {**request, "params": inner})
                texts.append(answered["result"]["content"][0]["text"])
            return {
                "jsonrpc": "2.0",
                "id": id,
                "result": {"content": [{"type": "text", "text": " ".join(texts)}]},
            }
        response = self.next(call, request)
        if "again" in moods:
            response = self.next(call, request)
        if "changed-id" in moods:
            response["id"] = "another"
        if "not-a-request" in moods:
            bad = self.ask("portico/next", {"call": call, "request": "hello"})
            return {"jsonrpc": "2.0", "id": id, "error": bad["error"]}
        return response


if __name__ == "__main__":
    Rig(set(sys.argv[1:])).run()
