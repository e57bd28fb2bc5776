"""``python -m arbora`` is the ``arbora`` command."""

import sys

from arbora.cli import main

if __name__ == "__main__":
    sys.exit(main())
