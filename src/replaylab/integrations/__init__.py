"""The replay library inside other libraries: one module for each, which imports it.

`replaylab.integrations.torch` has a dataset for PyTorch's data loaders, `replaylab.integrations.torchdata` a node for
torchdata's pipelines; `replaylab.integrations.sb3` goes under Stable-Baselines3's algorithms, and
`replaylab.integrations.sb3_contrib` under those of sb3-contrib; `replaylab.integrations.cleanrl` has the buffer that
CleanRL's scripts import. `replaylab.integrations.torchrl` and `replaylab.integrations.tianshou` bring the samplers to
those libraries' own buffers. Data sets come in as episodes through `replaylab.integrations.minari`, which also writes
them, `replaylab.integrations.d4rl` and `replaylab.integrations.lerobot`.
"""
