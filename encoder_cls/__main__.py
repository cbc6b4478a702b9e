"""Run the command line as `python -m encoder_cls`."""

from __future__ import annotations

from encoder_cls.cli.app import main

if __name__ == "__main__":
    main()
