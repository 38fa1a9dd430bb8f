"""``python -m replaylab``, the same as ``replaylab``."""

from replaylab.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())
