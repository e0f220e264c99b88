"""Regenerate the reference outputs in ``data/`` with packages from PyPI.

Use a separate environment, because this program needs an older transformers than the tests::

    python -m venv /tmp/golden && . /tmp/golden/bin/activate
    pip install -r tests/golden/requirements.txt && pip install --no-deps fairseq2==0.8.1
      cd tests && python -m golden.make            # all references, or those named as arguments
    cd tests && python -m golden.make --check    # compare with the committed files instead

======================  ====================================================================
package                 references that it computes
======================  ====================================================================
transformers            RoFormer (masked LM, classification, rotation, table of sines), rotation
                        of Llama, scaled frequencies, T5 buckets and bias, DeBERTa's logits,
                        ALiBi of Bloom, Longformer's and BigBird's self-attention,
                        Transformer-XL with its memory, Funnel
rotary-embedding-torch  rotations with offsets, a cache, another base, half of the channels,
                        scaled frequencies
x-transformers          ALiBi, xPos, CoPE
performer-pytorch       random features, linear attention
linformer               attention to combinations of keys
reformer-pytorch        attention within buckets
fairseq2                attention of Shaw and of Transformer-XL
roformer                RoFormerV2
gau-alpha               GAU-alpha
none: single files      DAPE, FoX (:mod:`golden.single_files`)
none: NumPy             TUPE, which no package has (:mod:`golden.tupe`)
======================  ====================================================================

Results are deterministic: names of parameters and inputs seed their values (:func:`golden.draw`).
"""

import argparse
import json
import sys
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import torch
from torch import Tensor

from golden import (
    DATA,
    deberta,
    layers,
    linformer_reformer,
    long,
    models,
    newer,
    relative,
    single_files,
    sparse,
    tupe,
)

Description, Outputs = Dict[str, Any], Dict[str, Tensor]
MAKERS: Dict[str, Callable[[str], Tuple[Description, Outputs]]] = {
    **layers.MAKERS,
    **relative.MAKERS,
    **deberta.MAKERS,
    **newer.MAKERS,
    **single_files.MAKERS,
    **sparse.MAKERS,
    **linformer_reformer.MAKERS,
    **long.MAKERS,
    **models.MAKERS,
    **tupe.MAKERS,
}
#: The absolute tolerance for results of other processors, in addition to a relative one of 1e-5.
ATOL = 2e-6


def as_text(description: Description) -> str:
    """*description* as JSON, with one line for each entry of a section."""

    def section(value: Any) -> str:
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        lines = (f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
        return "{\n" + ",\n".join(lines) + "\n }"

    sections = (f" {json.dumps(key)}: {section(value)}" for key, value in description.items())
    return "{\n" + ",\n".join(sections) + "\n}\n"


def as_arrays(outputs: Outputs) -> Dict[str, np.ndarray]:
    return {key: value.detach().numpy() for key, value in outputs.items()}


def compare(name: str, text: str, outputs: Dict[str, np.ndarray]) -> bool:
    """Print the largest difference from the committed files; returns whether they agree."""
    same = (DATA / f"{name}.json").read_text(encoding="utf-8") == text
    with np.load(DATA / f"{name}.npz") as stored:
        committed = {key: stored[key] for key in stored.files}
    if not same or set(committed) != set(outputs):
        print(f"{name}: the description or the names of outputs differ from the committed files")
        return False
    pairs = [(committed[key], value) for key, value in outputs.items()]
    largest = max(float(np.abs(a.astype(float) - b).max()) for a, b in pairs)
    close = all(np.allclose(a, b, rtol=1e-5, atol=ATOL) for a, b in pairs)
    print(f"{name}: largest difference {largest:.1e}{'' if close else ', above the tolerance'}")
    return close


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description="Regenerate the reference outputs.")
    parser.add_argument("names", nargs="*", help="names of references; default: all")
    parser.add_argument("--check", action="store_true", help="compare with data/; write nothing")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(MAKERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(MAKERS)}")
    torch.set_num_threads(1)
    agree = True
    for name in options.names or MAKERS:
        with torch.no_grad():
            description, outputs = MAKERS[name](name)
        text, arrays = as_text(description), as_arrays(outputs)
        if options.check:
            agree = compare(name, text, arrays) and agree
            continue
        (DATA / f"{name}.json").write_text(text, encoding="utf-8")
        np.savez_compressed(DATA / f"{name}.npz", **arrays)
        print(f"{name}: written")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
