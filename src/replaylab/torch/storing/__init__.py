"""Storing of steps: by PyTorch's operations, or by Triton's kernels in one launch or two."""
