"""Training of one learner in E environments, with its steps, draws and updates on a device of PyTorch."""
