"""A client that calls a tool repeatedly and discards the results.

    python -I -S tests/rigs/glutton.py PORT HEADERS TOOL ARGUMENTS

HEADERS and ARGUMENTS are JSON. It prints one line when it starts.
"""

import http.client
import json
import sys

PORT, HEADERS, TOOL, ARGUMENTS = sys.argv[1:]
ASKED = {"name": TOOL, "arguments": json.loads(ARGUMENTS)}


def main() -> None:
    """Call until terminated."""
    body = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": ASKED})
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", int(PORT))
        connection.request("POST", "/mcp", body, json.loads(HEADERS))
        answer = connection.getresponse()
        while answer.read(65536):
            pass
        connection.close()


if __name__ == "__main__":
    main()
