"""Rows outside the process after the machine itself has stopped."""

from pathlib import Path

import numpy as np
import pytest

from replaylab.errors import StorageError
from replaylab.replay import Field, MemoryMap, ReplayBuffer
from tests.replay.storage.storage_worlds import NEEDS_LINUX, small_headroom

pytestmark = NEEDS_LINUX


class TestPowerCuts:
    """State after a power cut: a file last written to before the machine's last start."""

    def crashed(self, path):
        """Pretend that the file was written to before the machine last started."""
        content = bytearray(path.read_bytes())
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().encode()
        at = content.index(boot)
        content[at : at + 36] = b"0" * 36
        path.write_bytes(content)

    def filled(self, path, **options):
        buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(path, **options))
        buffer.extend(x=np.arange(25.0))
        return buffer

    def test_what_was_not_flushed_is_opened_with_a_warning(self, tmp_path):
        self.filled(tmp_path / "rows")
        self.crashed(tmp_path / "rows")
        with pytest.warns(
            UserWarning, match=r"machine stopped after the last flush\(\).* rows may be damaged"
        ) as caught:
            buffer = ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))
        assert caught[0].filename == __file__
        assert buffer.get(range(15, 25))["x"].tolist() == list(range(15, 25))
        assert len(ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))) == 10, "it is settled"

    @pytest.mark.parametrize("how", ["flush", "close"])
    def test_what_was_flushed_is(self, tmp_path, how):
        buffer = self.filled(tmp_path / "rows")
        getattr(buffer, how)()
        self.crashed(tmp_path / "rows")
        assert len(ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))) == 10

    def test_a_step_after_the_flush_is_warned_of(self, tmp_path):
        buffer = self.filled(tmp_path / "rows")
        buffer.flush()
        buffer.add(x=0.0)
        self.crashed(tmp_path / "rows")
        with pytest.warns(UserWarning, match="the machine stopped after the last flush"):
            ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))

    def test_a_log_that_contradicts_itself_is_refused_even_so(self, tmp_path):
        with small_headroom(2):
            self.filled(tmp_path / "rows", writers=1)
        content = bytearray((tmp_path / "rows").read_bytes())
        at = content.index((3 << 32 | 10).to_bytes(8, "little"))
        content[at] = 11  # a row that another word names as well
        (tmp_path / "rows").write_bytes(content)
        self.crashed(tmp_path / "rows")
        with pytest.raises(StorageError, match="was damaged when the machine stopped"):
            ReplayBuffer(10, {"x": Field()}, storage=MemoryMap(tmp_path / "rows"))
