"""The benchmarks are run from the root of the checkout, not installed; make them importable here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
