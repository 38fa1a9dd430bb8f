"""The replay library inside other libraries: one module for each, which imports it.

`replaylab.integrations.torch` has a dataset for PyTorch's data loaders, `replaylab.integrations.torchdata` a node for
torchdata's pipelines. `replaylab.integrations.sb3` has a buffer and prioritized algorithms for Stable-Baselines3, and
`replaylab.integrations.sb3_contrib` prioritized algorithms for sb3-contrib. `replaylab.integrations.cleanrl` has the
buffer that CleanRL's scripts import. `replaylab.integrations.torchrl` and `replaylab.integrations.tianshou` add the
samplers to those libraries' own buffers. `replaylab.integrations.minari`, `replaylab.integrations.d4rl` and
`replaylab.integrations.lerobot` read data sets as episodes; the first also writes them.
"""
