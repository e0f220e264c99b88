"""Every task of the package is one that fairseq's commands can use."""

import inspect

import pytest
from fairseq.tasks import TASK_REGISTRY

pytestmark = pytest.mark.properties

OURS = [
    name for name, task in TASK_REGISTRY.items() if task.__module__.startswith("fairseq_posenc")
]


@pytest.mark.parametrize("name", OURS)
def test_a_task_learns_that_a_model_comes_from_a_checkpoint(name):
    # fairseq says so to tasks that name the argument; without that, a model that needs
    # data or another checkpoint to be new could not be loaded
    arguments = inspect.getfullargspec(TASK_REGISTRY[name].build_model).args
    assert "from_checkpoint" in arguments
