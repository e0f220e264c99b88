"""Greedy continuations of prompts by fairseq, with which other tools are compared."""

from pathlib import Path

import torch

import fairseq_posenc

STEPS, PAD, END = 40, 1, 2  # PAD and END are the ids of fairseq's symbols


class Reference:
    """The language model of a model folder, and prompts: the first two words of each line."""

    def __init__(self, folder, text, count):
        hub = fairseq_posenc.from_pretrained(folder)
        self._model = hub.models[0]
        lines = Path(text).read_text(encoding="utf-8").splitlines()[:count]
        self.prompts = [" ".join(line.split()[:2]) for line in lines]
        self.numbers = [[END, *hub.encode(prompt).tolist()[:-1]] for prompt in self.prompts]
        self.continued = list(map(self._continue, self.numbers))

    @torch.no_grad()
    def _continue(self, numbers):
        found = list(numbers)
        while len(found) < len(numbers) + STEPS and found[len(numbers) :][-1:] != [END]:
            logits = self._model(torch.tensor([found]))[0][0, -1]
            logits[PAD] = -torch.inf
            found.append(int(logits.argmax()))
        return found

    def same(self, continued):
        """A phrase that says how many prompts are continued as by fairseq."""
        same = sum(a == b for a, b in zip(self.continued, continued))
        return f"{same} of {len(self.continued)} continuations the same"
