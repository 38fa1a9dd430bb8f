"""A pytest plugin: a sanitizer looks at what a draw touches, not at its sampling distribution, so fewer draws do."""

from replaylab.testing import SamplerTestCase

compare = SamplerTestCase.compare


def compare_few(self, *args):
    """Compare a tenth of the batches with the sampling distribution."""
    self.batches = min(self.batches, 80)
    compare(self, *args)


def pytest_configure():
    """Once this is loaded as a plugin; being imported changes nothing."""
    SamplerTestCase.compare = compare_few
