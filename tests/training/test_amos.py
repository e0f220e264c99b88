"""--optimizer amos: the paper's algorithm, resuming, and error messages."""

import math
import sys

import pytest
import torch
from fairseq.optim import build_optimizer
from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.training.amos import AmosConfig

pytestmark = pytest.mark.formulas

pytest.importorskip("pytorch_optimizer", reason="needs pip install pytorch-optimizer")


def settings(lr=0.01, **flags):
    return OmegaConf.merge(OmegaConf.structured(AmosConfig), {"lr": [lr], "_name": "amos", **flags})


def algorithm(parameter, gradients, rate, beta, momentum, c, d, eps):
    """Algorithm 1 of Tian and Parikh 2022 for one matrix, in float64."""
    theta, scale = parameter.double(), math.sqrt(2 / parameter.size(1))
    v = b = torch.zeros((), dtype=torch.double)
    mean = torch.zeros_like(theta)
    for step, gradient in enumerate(gradients, 1):
        g = gradient.double()
        square = (g * g).mean()
        v = beta * v + (1 - beta) * square
        r = (1 - beta**step) / (v + eps)
        gamma = (1 + c * math.sqrt(rate) * b) ** -0.5 * rate**2 * r * square
        decay = 1 / (1 + d * math.sqrt(rate * scale) * b)
        change = decay * (rate * scale * r.sqrt() * g + gamma / 2 * theta)
        b = b * (1 + gamma) + gamma
        mean = momentum * mean + (1 - momentum) * change
        theta = theta - (mean if momentum else change)
    return theta


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_those_of_the_paper(momentum):
    start, gradients = torch.randn(5, 3), torch.randn(6, 5, 3)
    parameter = torch.nn.Parameter(start.clone())
    flags = {"amos_beta": 0.98, "amos_momentum": momentum, "amos_c": 0.5, "amos_d": 0.4}
    optimizer = build_optimizer(settings(0.3, **flags), [parameter])
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    expected = algorithm(start, gradients, 0.3, 0.98, momentum, 0.5, 0.4, 1e-18)
    assert (parameter.detach() - start).abs().max() > 0.2  # it has moved
    torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_an_optimizer_that_is_resumed_ends_where_it_would_have():
    start, gradients = torch.randn(5, 3), torch.randn(6, 5, 3)
    parameters = [torch.nn.Parameter(start.clone()) for _ in range(2)]
    one, other = (build_optimizer(settings(0.3, amos_momentum=0.9), [p]) for p in parameters)
    for number, gradient in enumerate(gradients):
        if number == 3:
            state, other = other.state_dict(), build_optimizer(settings(0.1), [parameters[1]])
            other.load_state_dict(state, {"lr": 0.3, "momentum": 0.9})
        for optimizer, parameter in zip((one, other), parameters):
            parameter.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(*parameters)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(UsageError, match="--optimizer amos: .*pip install pytorch-optimizer"):
        build_optimizer(settings(), [torch.nn.Parameter(torch.zeros(2, 2))])


def test_half_precision_keeps_tensors_apart():
    """With --fp16 on a GPU, fairseq reads ``supports_flat_params`` and may join all parameters."""
    optimizer = build_optimizer(settings(), [torch.nn.Parameter(torch.ones(3, 2))])
    with pytest.raises(UsageError, match="--optimizer amos: .*--fp16-no-flatten-grads"):
        optimizer.supports_flat_params  # noqa: B018
