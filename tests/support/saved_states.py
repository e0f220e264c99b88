"""Checkpoints with a few tensors, in the form in which fairseq-train writes them."""

import argparse
import itertools

UPDATES = itertools.count(100)


def state_with(model, updates=None, **flags):
    """A checkpoint such as fairseq-train writes for an architecture with argparse flags."""
    updates = next(UPDATES) if updates is None else updates
    run = {"lr": [0.1], "save_dir": "checkpoints", "left_pad_source": True, "adam_eps": 1e-8}
    model_flags = {
        "encoder_layers": 2,
        "position_encoding": "rotary",
        "dropout": 0.1,
        "arch": "roformer_tiny",
    }
    namespace = argparse.Namespace(**{**run, **model_flags, **flags})
    return {
        "args": None,
        "cfg": {
            "_name": None,
            "checkpoint": {"_name": None, "save_dir": namespace.save_dir},
            "task": {"_name": "translation", "left_pad_source": namespace.left_pad_source},
            "optimizer": {"_name": "adam", "adam_eps": namespace.adam_eps, "lr": namespace.lr},
            "model": namespace,
        },
        "model": model,
        "criterion": None,
        "optimizer_history": [{"num_updates": updates}],
        "task_state": {"updates": updates},
        "extra_state": {"train_iterator": {"epoch": updates}},
        "last_optimizer_state": {"state": {}},
    }
