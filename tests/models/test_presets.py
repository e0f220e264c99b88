"""Architectures: the papers' sizes, user-defined presets, and flags that swap the encoding."""

from argparse import Namespace

import pytest
import torch
from fairseq import models, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support.helpers import TINY, VOCABULARY, TranslationTask, model_settings
from support.own_extensions import registries_as_before

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.cli.model_flags import flags_with
from fairseq_posenc.exchange.transfer import new_checkpoint
from fairseq_posenc.models import FAMILIES, family_of, kinds, register_preset
from fairseq_posenc.models.presets import LANGUAGE_MODEL, MASKED_LM, TRANSLATION

pytestmark = pytest.mark.properties


@pytest.fixture(autouse=True)
def gone_afterwards():
    with registries_as_before():
        yield


def test_a_preset_is_its_base_with_other_settings():
    register_preset("mine", "tupe_tiny", encoder_layers=3, dropout=0.25)
    family = family_of("mine")
    assert family is FAMILIES["posenc_transformer"]
    settings = model_settings("mine", "--decoder-layers", "1")
    model = models.build_model(settings, TranslationTask())
    assert model.encoder.encoding.name == model.decoder.encoding.name == "tupe"
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)
    assert model.encoder.layers[0].dropout_module.p == 0.25
    assert family.presets["tupe_tiny"].get("encoder_layers") == 2


@pytest.mark.parametrize(
    "name, base, settings, words",
    [
        ("mine", "transformer", {}, "transformer is no architecture of the plug-in; .* list"),
        ("roformer_base", "tupe_base", {}, "preset roformer_base: .* exists already"),
        ("mine", "tupe_base", {"depth": 3}, "depth is no setting of posenc_transformer"),
    ],
)
def test_what_cannot_be_a_preset_is_refused(name, base, settings, words):
    with pytest.raises(UsageError, match=words):
        register_preset(name, base, **settings)


def test_architectures_of_fairseqs_decorator_belong_to_their_family():
    @models.register_model_architecture("posenc_transformer", "theirs")
    def theirs(args):
        args.position_encoding = getattr(args, "position_encoding", "alibi")

    assert family_of("theirs") is FAMILIES["posenc_transformer"]
    model = models.build_model(model_settings("theirs", *TINY), TranslationTask())
    assert model.encoder.encoding.name == "alibi"


_BERT = "bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad shaw transformer_xl deberta performer"
#: layers, channels, inner channels, heads; None if gated units have no inner channels or heads
SIZES = {
    # Vaswani et al. 2017, Table 3: base and big; fairseq's shape for small corpora
    (6, 512, 2048, 8): "roformer_base roformer_wmt_en_de roformer_align tupe_base t5bias_base "
    "alibi_base shaw_base transformer_xl_base deberta_base performer_base roformer_v2_base",
    (6, 1024, 4096, 16): "roformer_big",
    (6, 512, 1024, 4): "roformer_iwslt_de_en",
    # Devlin et al. 2019, section 3: BERT base and large
    (12, 768, 3072, 12): " ".join(f"{name}_masked_lm_base" for name in _BERT.split())
    + " roformer_masked_lm_base roformer_v2_masked_lm_base "
    # Brown et al. 2020, Table 2.1: 125 M and, with 16 heads, 1.3 B parameters
    + "roformer_lm_small learned_lm_small t5bias_lm_small alibi_lm_small shaw_lm_small "
    "transformer_xl_lm_small performer_lm_enwik8 gau_lm_small",
    (24, 1024, 4096, 16): "roformer_masked_lm_large roformer_v2_masked_lm_large",
    (24, 2048, 8192, 16): "roformer_lm_medium",
    (12, 768, 2048, 12): "llama_lm_small fox_lm rnope_swa_lm",  # 2/3 of 3072, for SwiGLU
    (22, 768, 1152, 12): "modernbert_masked_lm_base",  # Warner et al. 2024, Table 4
    # GAU section 5.1: two units for each Transformer layer
    (12, 512, 2048, 8): "gau_base",
    (24, 768, None, None): "gau_masked_lm_base",
}


def test_every_preset_has_the_sizes_of_its_paper():
    presets = {**TRANSLATION, **MASKED_LM, **LANGUAGE_MODEL}
    want = {name: sizes for sizes, names in SIZES.items() for name in names.split()}
    got = {}
    for name in presets:
        side = "decoder" if name in LANGUAGE_MODEL else "encoder"
        numbers = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
        got[name] = tuple(presets[name].get(f"{side}_{number}") for number in numbers)
    assert {n: sizes for n, sizes in got.items() if not n.endswith("_tiny")} == want
    for name in TRANSLATION:
        layers, heads = (presets[name][f"decoder_{n}"] for n in ("layers", "attention_heads"))
        assert (layers, heads) == (6 if not name.endswith("tiny") else 2, got[name][3])
    shaw = presets["shaw_base"]  # Shaw et al. section 4.1
    assert (shaw["shaw_max_distance"], shaw["shaw_values"]) == (16, True)


# --- the flags that swap the encoding of a trained model


SMALL = {"embed_dim": 32, "ffn_embed_dim": 48, "layers": 1, "attention_heads": 4}
ENCODER = {f"encoder_{name}": size for name, size in SMALL.items()}
DECODER = {f"decoder_{name}": size for name, size in SMALL.items()}
LENGTHS = dict.fromkeys(("max_source_positions", "max_target_positions", "max_positions"), 64)
OWN = {"position_encoding": "rotary", "rotary_base": 500.0, "norm": "rms", **LENGTHS}
OF_TRANSLATION = {**ENCODER, **DECODER, "share_all_embeddings": True, "dropout": 0.25, **OWN}
OF_LM = {**DECODER, "tokens_per_sample": 64, "share_decoder_input_output_embed": True, **OWN}
OF_MASKED_LM = {**ENCODER, "tokens_per_sample": 64, **OWN}
KINDS = (
    (kinds.TRANSLATION, OF_TRANSLATION),
    (kinds.CAUSAL, OF_LM),
    (kinds.MASKED, OF_MASKED_LM),
)


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
    encoding = "none" if kind is not kinds.CAUSAL else encoding
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
    checkpoint = load_file(path)
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
    assert f"has --arch {name}; give a model of" in said
