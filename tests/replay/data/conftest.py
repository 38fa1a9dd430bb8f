"""Fixtures of several files."""

import pytest
import torch


@pytest.fixture
def pinning(monkeypatch):
    """Pinned memory from ordinary memory, where there is no accelerator to pin it for."""
    if torch.cuda.is_available():
        return
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, pin_memory=False, **kwargs: empty(*args, **kwargs))
