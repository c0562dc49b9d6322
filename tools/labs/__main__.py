"""python -m hcq.tools.labs: see command.py."""

import sys

from hcq.tools.labs.command import main

sys.exit(main())
