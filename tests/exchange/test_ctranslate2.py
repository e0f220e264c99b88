"""Random models exported to CTranslate2 have the same log-probabilities, or are refused."""

import importlib.util
import os
import re
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import models as fairseq_models
from support.causal_language_models import SMALL as SMALL_LM
from support.conversion import convert, refuses
from support.helpers import TINY, VOCABULARY, encoding_of_sides, model_settings
from support.masked_language_models import SMALL as SMALL_MLM
from support.model_folders import Task, write_model, write_task_model

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.exchange.ctranslate2 import export
from fairseq_posenc.exchange.ctranslate2 import stacks as ctranslate2_stacks
from fairseq_posenc.exchange.ctranslate2.export import write
from fairseq_posenc.exchange.ctranslate2.positions import (
    EXPRESSIONS,
    bias_by_distance,
    refuse_settings,
)
from fairseq_posenc.exchange.ctranslate2.stacks import specification
from fairseq_posenc.exchange.formats import Wanted
from fairseq_posenc.models.kinds import CAUSAL, MASKED, TRANSLATION

pytestmark = pytest.mark.formulas

ctranslate2 = pytest.importorskip("ctranslate2", reason="exported models need CTranslate2")

OURS = "posenc_transformer"
SIZES = {TRANSLATION.name: TINY, CAUSAL.name: SMALL_LM, MASKED.name: SMALL_MLM}


def loaded(kind, arch, *flags):
    """A random model; no weight is 0 or 1, so that weights that an export loses are noticed."""
    settings = model_settings(arch, *SIZES[kind.name], *flags, task=kind.task)
    task = Task(VOCABULARY, VOCABULARY, Namespace(_name=kind.task, tokens_per_sample=200))
    model = fairseq_models.build_model(settings, task).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return Loaded("model.pt", model, task, settings)


def difference(kind, out, arch, *flags, quantization=None):
    model = loaded(kind, arch, *flags)
    refuse_settings("model.pt", kind, model.settings)
    wanted = Wanted("model.pt", str(out / "model"), True, {"quantization": quantization})
    return write(model, kind, wanted)


#: Flags by name: encodings, some with further flags.
_SCALED = "--rotary-scaling-factor 4 --rotary-original-length 30"
EXPRESSED = {
    "rotary": "rotary",
    "half fraction": "rotary --rotary-pairing half --rotary-fraction 0.5 --rotary-base 500",
    "bases": "rotary --rotary-base 500,10000",
    "longrope": f"rotary --rotary-scaling longrope --rotary-factors 1,1.5,2,4 {_SCALED}",
    "shaw": "shaw --shaw-max-distance 5",
    "shaw values": "shaw --shaw-max-distance 7 --shaw-values",
    "t5": "t5",
    "t5 short": "t5 --t5-num-buckets 8 --t5-max-distance 9",
    "alibi": "alibi",
    "sinusoidal": "sinusoidal",
    "learned": "learned",
    "none": "none",
    "both": "rotary+t5",
    "biases": "t5+alibi",
    "pattern": "none,rotary+alibi",
    "rms": "rotary --norm rms --no-bias",
    "gated": "rotary --feed-forward glu --activation-fn gelu --layer-norm-eps 1e-3",
    "tanh": "rotary --activation-fn gelu_accurate",
    "grouped": "rotary --kv-heads 2",
    "rms of heads": "t5 --qk-norm --kv-heads 2 --norm rms --no-bias",
    "one key head": "alibi --kv-heads 1",
    "sides of keys": "shaw --decoder-kv-heads 2",
    "yarn of norms": f"rotary --rotary-scaling yarn --qk-norm {_SCALED}",
    "embedding norm": "learned --layernorm-embedding",
    **{
        rule: f"rotary --rotary-scaling {rule} {_SCALED}"
        for rule in ("linear", "ntk", "yarn_untruncated", "llama3")
    },
    "yarn": f"rotary --rotary-scaling yarn {_SCALED} --rotary-fraction 0.5",
}
POSITIONS = "--position-encoding"
EXPRESSED = {name: [POSITIONS, *row.split()] for name, row in EXPRESSED.items()}


@pytest.mark.parametrize("name", ["half fraction", "yarn", "shaw values", "alibi"])
def test_long_sentences(name, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "LENGTHS", (1000,))
    report = difference(TRANSLATION, tmp_path, OURS, *EXPRESSED[name])
    assert report.difference < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("longest", [20, 200])
def test_t5_reaches_its_maximal_distance_in_short_models(longest):
    """The table does not depend on the model's longest input, so it is exact for all lengths."""
    limits = ["--max-source-positions", str(longest), "--t5-max-distance", "64"]
    encoding = loaded(TRANSLATION, OURS, POSITIONS, "t5", *limits).model.encoder.encoding
    positions, near = bias_by_distance(encoding, 0), torch.arange(64)
    assert positions.exact_below is None
    table = torch.tensor(positions.tensors["relative_attention_bias"])
    expected = encoding.by_distance(torch.cat((-near, near))).t()
    assert torch.equal(torch.cat((table[:64], table[128:192])), expected)
    far = encoding.by_distance(torch.tensor([-1000])).t()
    assert torch.equal(table[64:128], far.expand(64, -1))


OF_DECODERS = ["grouped", "yarn of norms", "shaw values", "t5", "alibi", "learned"]
OF_ENCODERS = ["yarn", "shaw", "t5", "alibi", "learned", "rms", "grouped"]
SHAPES = {
    "sides": "--encoder-position-encoding t5 --decoder-position-encoding rotary",
    "pre-norm": "--encoder-normalize-before --decoder-normalize-before",
    "no final norm": "--decoder-normalize-before --no-decoder-final-norm",
    "sizes": "--encoder-attention-heads 2 --decoder-layers 3 --decoder-embed-dim 16",
    "input": "--decoder-input-dim 24",
    "shared": "--share-all-embeddings --no-scale-embedding",
}
ROTARY, NORMS_FIRST = [POSITIONS, "rotary"], ["--decoder-normalize-before"]
#: Models by name: their kind, their architecture and its flags.
MODELS = {
    **{name: (TRANSLATION, OURS, flags) for name, flags in EXPRESSED.items()},
    **{name: (TRANSLATION, OURS, [*ROTARY, *flags.split()]) for name, flags in SHAPES.items()},
    **{
        f"language model {name}": (CAUSAL, "posenc_lm", [*EXPRESSED[name], *NORMS_FIRST])
        for name in [*OF_DECODERS, "none", "pattern"]
    },
    **{
        f"encoder {name}": (MASKED, "posenc_masked_lm", [*EXPRESSED[name], "--num-segments", "2"])
        for name in OF_ENCODERS
    },
    "transformer": (TRANSLATION, "transformer", ["--encoder-learned-pos", *NORMS_FIRST]),
    "transformer_lm": (CAUSAL, "transformer_lm", [*NORMS_FIRST, "--activation-fn", "gelu"]),
    "roberta": (MASKED, "roberta", []),
}


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities_are_the_same(name, tmp_path):
    kind, arch, flags = MODELS[name]
    assert difference(kind, tmp_path, arch, *flags).difference < 1e-4


#: Words of a refusal, and the flags of the refused model.
REFUSED = {
    **{f"--position-encoding {x}": x for x in ("learned+rotary", "rotary+shaw", "t5,alibi")},
    "--decoder-position-encoding tupe": "t5 --decoder-position-encoding tupe",
    "--rotary-value True": "rotary --rotary-value",
    "--layer gated": "rotary --layer gated",
    "--activation-fn linear": "rotary --activation-fn linear",
    **{
        f"position-encoding {name}: CTranslate2 cannot": name
        for name in sorted(set(ENCODINGS) - set(EXPRESSIONS))
    },
}
#: Settings of fairseq for which our models have no flag.
SET = {"adaptive_softmax_cutoff": "20", "base_layers": 2}


@pytest.mark.parametrize("words", [*REFUSED, *SET])
def test_refuses_by_name(words):
    encoding, *flags = REFUSED.get(words, "none").split()
    encodings = encoding_of_sides(encoding) if "cannot" in words else [POSITIONS, encoding]
    settings = dict(loaded(TRANSLATION, OURS, *encodings, *flags).settings)
    if words in SET:
        settings[words], words = SET[words], f"{flag_of(words)} {SET[words]}"
    with pytest.raises(SystemExit, match=re.escape(words)):
        refuse_settings("model.pt", TRANSLATION, settings)


def test_every_expression_is_compared():
    assert set(EXPRESSIONS) <= {name for flags in EXPRESSED.values() for name in flags}


@pytest.mark.parametrize("encoding", sorted(set(EXPRESSIONS) - {"none", "learned", "sinusoidal"}))
def test_a_wrong_expression_is_noticed(encoding, tmp_path, monkeypatch):
    """The comparison notices wrong positions, and nothing is written."""
    wrong = EXPRESSIONS[encoding]._replace(positions=EXPRESSIONS["none"].positions)
    monkeypatch.setitem(EXPRESSIONS, encoding, wrong)
    monkeypatch.setattr(ctranslate2_stacks, "native_alibi", lambda names: False)
    with pytest.raises(SystemExit, match="above 0.0001; nothing was written"):
        difference(TRANSLATION, tmp_path, OURS, "--position-encoding", encoding)
    assert os.listdir(tmp_path) == []


def test_languages_that_neither_the_checkpoint_nor_the_data_say_are_given(tmp_path, out):
    model = write_model(tmp_path / "made") / "model.pt"
    state = read_checkpoint(model)
    state["cfg"]["task"].update(source_lang=None, target_lang=None)
    write_checkpoint(state, model)
    export = ("export", "ctranslate2", model, out)
    refuses(["give ", ", and also give --source-lang and --target-lang"], *export)
    convert(*export, "--source-lang", "en", "--target-lang", "de")
    assert (out / "model.bin").is_file()


def test_quantised_weights_are_close(tmp_path, monkeypatch):
    """The engine computes in float32, because 8-bit products overflow on some processors."""
    engine = ctranslate2.Translator
    monkeypatch.setattr(
        ctranslate2, "Translator", lambda folder, **_: engine(folder, compute_type="float32")
    )
    flags = (*ROTARY, "--share-all-embeddings")
    report = difference(TRANSLATION, tmp_path, OURS, *flags, quantization="int8")
    assert 1e-4 < report.difference < 1
    assert report.quantization == "int8"


def test_an_older_engine_is_given_what_it_knows():
    class Older:
        def __init__(self, heads, rms_norm=False):
            self.given = heads, rms_norm

    arguments = {"heads": 4, "rms_norm": True, "num_heads_kv": None, "qk_norm": False}
    assert specification(Older, arguments).given == (4, True)
    with pytest.raises(UsageError, match=r"ctranslate2 [\d.]+ has no num_heads_kv in its Older"):
        specification(Older, {**arguments, "num_heads_kv": 2})


def test_a_parameter_without_counterpart_is_refused(tmp_path):
    model = loaded(TRANSLATION, OURS, "--position-encoding", "rotary")
    model.model.decoder.layers[0].gate = torch.nn.Linear(2, 2)
    with pytest.raises(SystemExit, match="decoder.layers.0.gate.weight"):
        write(model, TRANSLATION, Wanted("model.pt", str(tmp_path / "m")))
    assert os.listdir(tmp_path) == []


# --- examples/ctranslate2/converter.py, which is used like CTranslate2's own converters


FILE = Path(__file__).resolve().parents[2] / "examples" / "ctranslate2" / "converter.py"


@pytest.fixture(scope="module")
def converter():
    spec = importlib.util.spec_from_file_location("converter", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(folder, out, *more):
    """Arguments for a model in *folder*; flags have the names of ct2-fairseq-converter."""
    given = {"model_path": folder / "model.pt", "data_dir": folder / "data", "output_dir": out}
    return [*(str(word) for name, path in given.items() for word in (f"--{name}", path)), *more]


@pytest.mark.parametrize(
    "task, flags", [("", ["--quantization", "int8"]), ("language_modeling", [])]
)
def test_its_files_are_those_of_the_export(task, flags, converter, tmp_path):
    made = tmp_path / "made"
    folder = write_task_model(made, task) if task else write_model(made)
    convert("export", "ctranslate2", folder / "model.pt", tmp_path / "exported", *flags)
    converter.main(arguments(folder, tmp_path / "converted", *flags))
    files = {path.name: path.read_bytes() for path in (tmp_path / "converted").iterdir()}
    assert {"model.bin", "config.json"} < set(files)
    for file, content in files.items():
        assert (tmp_path / "exported" / file).read_bytes() == content, file


def test_what_is_wrong_is_one_line_and_nothing_is_written(converter, tmp_path):
    made = write_model(tmp_path / "made")
    tupe = write_model(tmp_path / "tupe", "--position-encoding", "tupe")
    out, there, absent = tmp_path / "out", tmp_path / "there", str(tmp_path / "absent")
    there.mkdir()
    for words, given in {
        "--position-encoding tupe": arguments(tupe, out),
        "--data .*absent: there is no such folder": arguments(made, out, "--data_dir", absent),
        "--output_dir .*there: exists already": arguments(made, there),
        "--vocab_mapping no: no such file": arguments(made, out, "--vocab_mapping", "no"),
    }.items():
        with pytest.raises(SystemExit, match=words) as error:
            converter.main(given)
        assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "there", "tupe"]
    converter.main(arguments(made, there, "--force"))
    assert (there / "model.bin").is_file()
    assert torch.is_grad_enabled()
