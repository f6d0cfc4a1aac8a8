"""``python -m boundby``."""

import sys

from boundby.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
