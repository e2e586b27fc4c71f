"""Makes `python -m portico` the same as the `portico` command, and runs owners of gateways."""

import os
import sys

if sys.argv[1:2] == ["owner"] and len(sys.argv) > 6:
    # Before any thread or event loop exists: the owner must not descend from the window.
    try:
        child = os.fork()
    except OSError as error:
        os._exit(error.errno or 1)
    if child:
        os._exit(0)
    from portico.edge.windows.owner_process import run_owner
    from portico.upstream.process.hardening import harden

    harden()  # exec has opened it
    run_owner(sys.argv[2:])

from portico.commands.cli.main import main

sys.exit(main())
