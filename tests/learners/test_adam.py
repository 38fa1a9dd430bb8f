import torch

from replaylab.learners.adam import Adam


def test_equals_pytorchs_adam():
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(300, generator=generator)
    theirs = ours.clone().requires_grad_()
    adam, reference = Adam(ours, 1e-2), torch.optim.Adam([theirs], lr=1e-2)
    for _ in range(200):
        theirs.grad = torch.randn(300, generator=generator) * torch.logspace(-6, 2, 300)
        adam.step(theirs.grad)
        reference.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
