"""``python -m replaylab``, the same as ``replaylab``."""

from replaylab.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
