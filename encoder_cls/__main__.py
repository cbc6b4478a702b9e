"""The start of the program `encoder-cls`, which is also that of `python -m encoder_cls`."""

from __future__ import annotations

import sys


def main() -> None:
    """Import the command line and run it. Ctrl-C during the imports ends without a traceback."""
    try:
        from encoder_cls.cli.app import main as run_command_line

        run_command_line()
    except KeyboardInterrupt:
        sys.exit(130)  # 128 plus the number of SIGINT, as Ctrl-C ends a command


if __name__ == "__main__":
    main()
