"""Portico as a library: a script that serves itself over stdio, without the command."""

from bench.servers.portico_server import server
from portico.gateway.app import serve_stdio

serve_stdio(server)
