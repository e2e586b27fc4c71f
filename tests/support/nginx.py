"""nginx in front of a server."""

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.backoff import until
from tests.support.shared import unavailable

_CONFIG = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr crit;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_body_timeout 1s;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{to};
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Connection "";
        }}
    }}
}}
"""


@contextlib.asynccontextmanager
async def nginx(folder: Path, port: int, to: int) -> AsyncIterator[None]:
    """nginx on a port, which forwards everything to another one."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        unavailable("nginx is not installed")
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, port=port, to=to))
    process = await asyncio.create_subprocess_exec(
        program, "-q", "-c", str(config), "-p", str(folder), "-e", "stderr"
    )

    def accepts() -> bool:
        assert process.returncode is None, "nginx has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        await until(accepts)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
