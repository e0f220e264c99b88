"""Packed model folders of every task, as fixtures; a module for ``pytest_plugins``."""

import functools
import socket

import pytest
import torch
from support.model_folders import pack, write_model, write_task_model

import fairseq_posenc

TRUNCATE = {"shorten_method": "truncate"}
PAIRS = {"pairs": True, "segments": 2}
MODELS = {
    "masked_lm": ("masked_lm", {}),
    "language_modeling": ("language_modeling", {}),
    "texts": ("sentence_prediction", TRUNCATE),
    "pairs": ("sentence_prediction", PAIRS),
    "roberta": ("sentence_prediction", {**PAIRS, "separator_token": 2}),
    "bare": ("sentence_prediction", {**PAIRS, "init_token": None}),
    "value": ("sentence_prediction", {"num_classes": 1, "regression_target": True}),
}


@pytest.fixture(scope="session")
def folder_of(once):
    """A function that returns the model folder of ``translation`` or of a name in MODELS."""

    def make(folder, name):
        if name == "translation":
            write_model(folder / "made")
        else:
            task, settings = MODELS[name]
            write_task_model(folder / "made", task, **settings)
        pack(folder / "made", folder / "packed", "--trust-subwords")  # data are already in subwords

    return lambda name: once(f"packed-{name}", lambda folder: make(folder, name)) / "packed"


@pytest.fixture(scope="session")
def loaded(folder_of):
    return functools.lru_cache(maxsize=None)(
        lambda name: fairseq_posenc.from_pretrained(folder_of(name))
    )


@pytest.fixture
def no_network(monkeypatch):
    def connect(self, address):
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", connect)


def numbers(dictionary, text):
    return [dictionary.index(word) for word in text.split()]


@torch.no_grad()
def log_probabilities(logits, targets):
    """The log-probabilities of *targets*, given logits (T, V)."""
    return logits.double().log_softmax(-1)[range(len(targets)), targets].tolist()


SENTENCES = ["the cat sleeps .", "cat", "the do@@ g barks . the cat"]
