"""The flags that give a trained model another encoding: the same model but for positions."""

from argparse import Namespace

import pytest
import torch
from fairseq import models, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support.helpers import VOCABULARY

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.native import new_checkpoint
from fairseq_posenc.models.kinds import CAUSAL, MASKED, TRANSLATION
from fairseq_posenc.models.model_flags import flags_with

pytestmark = pytest.mark.properties

SIZES = {"embed_dim": 32, "ffn_embed_dim": 48, "layers": 1, "attention_heads": 4}
ENCODER = {f"encoder_{name}": size for name, size in SIZES.items()}
DECODER = {f"decoder_{name}": size for name, size in SIZES.items()}
LENGTHS = dict.fromkeys(("max_source_positions", "max_target_positions", "max_positions"), 64)
OWN = {"position_encoding": "rotary", "rotary_base": 500.0, "norm": "rms", **LENGTHS}
OF_TRANSLATION = {**ENCODER, **DECODER, "share_all_embeddings": True, "dropout": 0.25, **OWN}
OF_LM = {**DECODER, "tokens_per_sample": 64, "share_decoder_input_output_embed": True, **OWN}
OF_MASKED_LM = {**ENCODER, "tokens_per_sample": 64, **OWN}
KINDS = ((TRANSLATION, OF_TRANSLATION), (CAUSAL, OF_LM), (MASKED, OF_MASKED_LM))


def message(call, *args):
    with pytest.raises(UsageError) as error:
        call(*args)
    return error.value.message


@pytest.fixture(params=KINDS, ids=lambda entry: entry[0].name)
def saved(request, tmp_path):
    """A checkpoint without parameters, its kind, and its settings."""
    kind, wanted = request.param
    known = vars(kind.family.dataclass())
    settings = {name: value for name, value in wanted.items() if name in known}
    path = tmp_path / "model.pt"
    torch.save(new_checkpoint({**settings, "tokens_per_sample": 64}, "data", kind), path)
    return str(path), kind, settings


def built(words):
    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *words])
    cfg = convert_namespace_to_omegaconf(args)
    task = Namespace(source_dictionary=VOCABULARY, target_dictionary=VOCABULARY, cfg=cfg.task)
    return models.build_model(cfg.model, task), cfg


@pytest.mark.parametrize("encoding", ["alibi", "xpos"])
def test_the_model_is_the_same_but_for_positions(saved, encoding):
    path, kind, settings = saved
    encoding = "none" if kind is not CAUSAL else encoding
    words = flags_with(path, encoding)
    assert words[:4] == ["--arch", kind.arch, "--position-encoding", encoding]
    model, cfg = built(words)
    for name, value in settings.items():
        if name not in ("position_encoding", "rotary_base"):
            assert getattr(cfg.model, name) == value, name
    # xPos rotates, too, and keeps the base
    assert ("--rotary-base" in words) == (encoding == "xpos")
    assert cfg.task._name == kind.task and cfg.criterion._name == kind.criterion[0]
    parts = [part for part in model.modules() if hasattr(part, "encoding")]
    assert {part.encoding.name for part in parts} == {encoding}


def test_the_encoding_that_a_model_has_is_no_other(saved):
    said = message(flags_with, saved[0], "rotary")
    assert said.startswith("--position-encoding rotary: ") and "has it already" in said
    assert "unknown encoding 'rope'" in message(flags_with, saved[0], "rope")


def test_an_architecture_registered_elsewhere_is_known_by_its_parameters(saved, tmp_path):
    path, kind, _ = saved
    checkpoint = torch.load(path, weights_only=False)
    model = checkpoint["cfg"]["model"]
    name = "elsewhere_18L"
    if isinstance(model, Namespace):
        model.arch = model._name = name
    else:
        checkpoint["cfg"]["model"] = {**model, "_name": name, "arch": name}
    checkpoint["model"] = {f"{kind.stack}layers.0.self_attn.k_proj.weight": torch.zeros(1)}
    torch.save(checkpoint, tmp_path / "elsewhere.pt")
    assert flags_with(str(tmp_path / "elsewhere.pt"), "none")[1] == kind.arch
    checkpoint["model"] = {"encoder.lstm.weight_ih_l0": torch.zeros(1)}
    torch.save(checkpoint, tmp_path / "elsewhere.pt")
    said = message(flags_with, str(tmp_path / "elsewhere.pt"), "none")
    assert f"is a model {name}; it has to be" in said
