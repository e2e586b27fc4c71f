"""The program of the guardian and of keepers, run as `python -I -S program.py NAME ...`.

It imports few modules, and none of other packages: each such process stays small.
"""

import os
import sys

sys.path.append(os.path.abspath(os.path.join(__file__, "../../../..")))

if sys.argv[1] == "portico-guardian":
    from portico.upstream.process.guardian_process import main
else:
    from portico.upstream.process.keeper_process import main

main()
