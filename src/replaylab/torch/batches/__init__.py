"""Batches on a GPU: draws and copies of rows in one or two kernels, into one block of memory."""
