import numpy as np
import pytest
import torch

from replaylab.learners import MultiLayerPerceptron


def made(sizes, seeds):
    network = MultiLayerPerceptron(sizes, len(seeds))
    network.initialise([np.random.default_rng(seed) for seed in seeds])
    return network


def plain(network, x):
    """The same network through autograd, with parameters that record gradients."""
    leaves = []
    for layer in network.layers:
        weight, bias = (block.clone().requires_grad_() for block in (layer.weight, layer.bias))
        leaves += [weight, bias]
        x = torch.einsum("roi,rbi->rbo", weight, x) + bias[:, None]
        x = torch.relu(x) if layer.relu else x
    return x, leaves


SIZES = [(4, 128, 2), (4, 2), (20, 8, 24, 3), (3, 32, 32, 18), (1, 5, 1)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("replicas", [1, 5])
@pytest.mark.parametrize("rows", [1, 6])
def test_outputs_and_gradients_equal_autograds(sizes, replicas, rows):
    generator = torch.Generator().manual_seed(0)
    network = made(sizes, range(replicas))
    for _ in range(2):  # the second pass reuses memory
        x = torch.randn(replicas, rows, sizes[0], generator=generator)
        grad = torch.randn(replicas, rows, sizes[-1], generator=generator)
        y = network.forward(x)
        expected, leaves = plain(network, x)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)
        network.backward(grad.clone())
        blocks = [block for layer in network.layers for block in (layer.grad_weight, layer.grad_bias)]
        for block, wanted in zip(blocks, torch.autograd.grad(expected, leaves, grad), strict=True):
            torch.testing.assert_close(block, wanted, rtol=1e-4, atol=1e-5)


def test_every_parameter_has_a_replica_axis_and_one_place_in_the_flat_tensor():
    network = made((4, 16, 2), range(3))
    blocks = [block for layer in network.layers for block in (layer.weight, layer.bias)]
    assert [tuple(block.shape) for block in blocks] == [(3, 16, 4), (3, 16), (3, 2, 16), (3, 2)]
    np.testing.assert_array_equal(torch.cat([block.flatten() for block in blocks]), network.parameters)
    network.parameters.zero_()
    assert not any(block.any() for block in blocks)


def test_a_replica_starts_as_a_single_network_of_its_seed():
    population, single = made((4, 16, 2), [3, 1, 4]), made((4, 16, 2), [1])
    for several, one in zip(population.layers, single.layers, strict=True):
        torch.testing.assert_close(several.weight[1], one.weight[0], rtol=0, atol=0)
        torch.testing.assert_close(several.bias[1], one.bias[0], rtol=0, atol=0)
        bound = several.weight.shape[2] ** -0.5
        assert 0.5 * bound < several.weight.abs().max() <= bound
        assert not torch.equal(several.weight[0], several.weight[1])


def test_gradients_are_clipped_replica_by_replica():
    network = made((4, 16, 2), range(3))
    torch.manual_seed(0)
    network.forward(torch.randn(3, 8, 4))
    network.backward(torch.randn(3, 8, 2) * torch.tensor([1e-3, 1.0, 50.0])[:, None, None])

    def norms():
        blocks = [b.flatten(1) for layer in network.layers for b in (layer.grad_weight, layer.grad_bias)]
        return torch.cat(blocks, 1).norm(dim=1)

    before = norms()
    assert before[0] < 0.5 < before[1] < before[2]
    network.clip_gradients(0.5)
    torch.testing.assert_close(norms(), torch.tensor([before[0], 0.5, 0.5]), rtol=1e-4, atol=0)


def test_a_copy_takes_the_values_not_the_memory():
    network, other = made((4, 16, 2), [0]), made((4, 16, 2), [1])
    network.copy_from(other)
    assert torch.equal(network.parameters, other.parameters)
    other.parameters.zero_()
    assert network.parameters.any()
