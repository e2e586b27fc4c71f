"""Makes `python -m portico` the same as the `portico` command."""

import sys

from portico.cli.main import main

sys.exit(main())
