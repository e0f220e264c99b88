"""Outputs of small models, computed by an earlier version of this package.

``data/earlier.json`` has the flags of each model, and a digest of the names and shapes of its
parameters; ``data/earlier.npz`` has some of its logits.  No weights are stored: they are drawn with
seeds that depend on their names.  Tests that compare with these files show that checkpoints of the
earlier version still load and give the same outputs::

    cd tests && python -m golden.earlier       # rewrites both files with the current version
"""

import argparse
import hashlib
import json
import re
from typing import Dict, Iterator, List, Tuple

import numpy as np
import torch
from fairseq import models
from fairseq.models import ARCH_MODEL_INV_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from support.helpers import VOCABULARY, model_settings
from support.lists import rows_of
from torch import Tensor, nn

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.models import family_of
from golden import DATA, draw

#: The size flags of a model; %s is ``encoder`` or ``decoder``.
SIZES = "--%s-embed-dim 32 --%s-ffn-embed-dim 48 --%s-layers 2 --%s-attention-heads 4"


def _configurations(encodings: List[str], causal_only: List[str]) -> Iterator[Tuple[str, str]]:
    """Yield the architecture and the flags of every model that ``earlier.txt`` describes."""
    rows = rows_of("earlier.txt")
    layers = [("*", name) for name in encodings] + [row for row in rows if len(row) == 2]
    for family, sides, task, flags in (row for row in rows if len(row) == 4):
        sizes = " ".join(SIZES.replace("%s", side) for side in sides.split())
        common = f"{sizes} --task {task} --dropout 0 {flags}"
        for preset in ARCH_MODEL_INV_REGISTRY[family]:
            if preset != "roformer_align":  # its alignment layer needs more than two layers
                yield preset, common
        if "--criterion" in flags:
            continue  # layers are tested in another family
        for families, layer in layers:
            if families != "*" and family not in families.split():
                continue
            other = ""
            if layer in causal_only and "encoder" in sides:
                if "decoder" not in sides:
                    continue
                other = " --encoder-position-encoding rotary"
            yield family, f"{common} --position-encoding {layer}{other}"


def is_served(arch: str, flags: str) -> bool:
    """False for a model that needs a pack that is not installed."""
    known = {"--task": TASK_REGISTRY, "--attention": ATTENTIONS}
    words = flags.split()
    chosen = [(known[flag], value) for flag, value in zip(words, words[1:]) if flag in known]
    family = family_of(arch)
    fields = () if family is None else family.dataclass.__dataclass_fields__
    names = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    others = {"task", "criterion", "tokens_per_sample"}
    return names <= {*fields, *others} and all(value in registry for registry, value in chosen)


def build(arch: str, flags: str) -> nn.Module:
    """The model that fairseq-train builds with these flags."""
    given = flags.split()
    named = argparse.Namespace(_name=given[given.index("--task") + 1], tokens_per_sample=64)
    task = argparse.Namespace(cfg=named, dictionary=VOCABULARY)
    task.source_dictionary = task.target_dictionary = VOCABULARY
    return models.build_model(model_settings(arch, *given), task).eval()


def _state(model: nn.Module) -> Dict[str, Tensor]:
    """The state dict, sorted, without the duplicates in layers of fairseq 0.12.2."""
    doubled = re.compile(r"layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")
    state = model.state_dict()
    return {k: state[k] for k in sorted(state) if not doubled.search(k)}


def names_and_shapes(model: nn.Module) -> List[str]:
    return [f"{name} {tuple(x.shape)}" for name, x in _state(model).items()]


def digest(model: nn.Module) -> str:
    """A digest of the names and shapes in the state dict."""
    return hashlib.sha256("\n".join(names_and_shapes(model)).encode()).hexdigest()[:16]


def fill(model: nn.Module) -> None:
    """Fill the model's floating-point tensors with random numbers, seeded by their names."""
    filled: Dict[int, str] = {}
    state = _state(model)
    for name, x in state.items():
        if x.is_floating_point() and x.numel():
            filled.setdefault(x.data_ptr(), name)  # tied weights have one value
            mean = 1.0 if re.search(r"norm\w*\.weight$", name) else 0.0
            with torch.no_grad():
                x.copy_(draw(filled[x.data_ptr()], [x.numel()], mean, 0.3).view_as(x))


@torch.no_grad()
def outputs_of(model: nn.Module) -> Tensor:
    """Forty-eight of the logits (or features) for three padded texts."""
    generator = torch.Generator().manual_seed(3)
    source, target = (torch.randint(4, 64, (3, n), generator=generator) for n in (7, 9))
    source[0, :2], target[1, -3:], target[:, 0] = (
        VOCABULARY.pad(),
        VOCABULARY.pad(),
        VOCABULARY.bos(),
    )
    torch.manual_seed(1)  # the Reformer draws its buckets
    if isinstance(model, models.FairseqEncoderDecoderModel):
        found = model(source, None, target)[0]
    elif hasattr(model, "generator"):
        found = model(target, features_only=True)[0]
    else:
        found = model(target)[0]
    values = found[target.ne(VOCABULARY.pad())].reshape(-1)
    return values[:: values.numel() // 48][:48]


def main() -> None:
    import fairseq_posenc
    from fairseq_posenc.encodings import ENCODINGS, all_encodings

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default=fairseq_posenc.__version__, help="to record")
    version = parser.parse_args().version
    causal_only = [name for name in ENCODINGS if any(e.causal_only for e in all_encodings(name))]
    entries: List[Dict[str, str]] = []
    outputs: Dict[str, np.ndarray] = {}
    for arch, flags in _configurations(sorted(ENCODINGS), causal_only):
        model = build(arch, flags)
        fill(model)
        outputs[str(len(entries))] = outputs_of(model).numpy()
        entries.append({"arch": arch, "flags": flags, "state": digest(model)})
    rows = ",\n ".join(json.dumps(entry) for entry in entries)
    head = f'{{"version": "{version}", "models": [\n {rows}\n]}}\n'
    (DATA / "earlier.json").write_text(head, encoding="utf-8")
    np.savez_compressed(DATA / "earlier.npz", **outputs)


if __name__ == "__main__":
    main()
