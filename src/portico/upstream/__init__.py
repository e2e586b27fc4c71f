"""The side of servers: processes, wires, requests and answers, connections, logins."""
