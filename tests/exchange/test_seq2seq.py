"""Translation models of random weights as native classes of transformers, and refusals by name."""

import contextlib
import io
import json

import pytest
import torch
from fairseq.data import Dictionary
from support.conversion import convert, refuses
from support.foreign_models import table_of
from support.translations import EXPRESSED, NORMS_FIRST, SEQ2SEQ, SHARED, WORDS, write_translation

from fairseq_posenc.checkpoints import loader
from fairseq_posenc.exchange import native
from fairseq_posenc.models.kinds import PAD, TRANSLATION
from fairseq_posenc.serving.translate import Beam
from fairseq_posenc.serving.translation import FairseqEngine

#: The longest text is longer than any in a batch of training would be.
TEXTS = ["w1 w2 w39 elsewhere w3", "w7", " ".join(WORDS + WORDS[:18])]


@pytest.fixture(scope="module")
def exported(transformers, tmp_path_factory):
    """The checkpoint of a model of EXPRESSED and the folder of its export, verified once."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("seq2seq")
            target, flags = EXPRESSED[name]
            path = write_translation(folder / "ours", *flags)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                convert("export", target, path, folder / "theirs", "--verify")
            line = f"largest difference from {table_of(target).name}: "
            assert float(printed.getvalue().split(line)[1].split()[0]) < 3e-5
            made[name] = path, folder / "theirs"
        return made[name]

    return get


def translations(transformers, path, theirs, beam):
    """Those of both sides, in symbols; transformers gets the texts as one padded batch."""
    loaded = loader.load(str(path))
    settings = Beam(beam, 1.0, 1, 200, 2000)
    found = FairseqEngine(loaded).translate([t.split() for t in TEXTS], [[]] * 3, settings)
    ours = [hypotheses[0].tokens for hypotheses in found]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(theirs).eval()
    assert type(model).__name__ in {next(iter(table_of(name).architectures)) for name in SEQ2SEQ}
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    rows = model.generate(**batch, num_beams=beam, do_sample=False)
    symbols = loaded.task.target_dictionary
    end = (symbols.eos(), PAD)
    return ours, [[symbols[n] for n in row.tolist() if n not in end] for row in rows]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", ["unscaled", "mbart", "m2m100", "swiglu"])
def test_translations_are_the_same(name, beam, exported, transformers):
    ours, theirs = translations(transformers, *exported(name), beam)
    assert ours == theirs
    assert beam > 1 or max(map(len, ours)) > 50  # models of random weights rarely end


def test_models_of_fairseq_itself_are_taken(transformers, tmp_path, capsys):
    """They have a table of sinusoids by default, or a learned one."""
    learned = ["--encoder-learned-pos", "--decoder-learned-pos", "--layernorm-embedding"]
    for target, flags in (("hf-m2m100", NORMS_FIRST), ("hf-bart", learned)):
        path = write_translation(tmp_path / "ours", *flags, *SHARED, arch="transformer")
        convert("export", target, path, tmp_path / target, "--verify")
        name = table_of(target).name
        assert f"largest difference from {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", EXPRESSED)
@torch.no_grad()
def test_every_row_returns_as_a_checkpoint_that_computes_the_same(name, exported, tmp_path):
    (path, theirs), target = exported(name), EXPRESSED[name][0]
    convert("import", target, theirs, tmp_path / "back", "--verify")
    dictionary = tmp_path / "back" / "dict.txt"
    assert dictionary.read_text() == (path.parent / "dict.en.txt").read_text()
    before = loader.load(str(path)).model
    after = native.load(str(tmp_path / "back" / "checkpoint.pt"), str(dictionary), TRANSLATION)
    assert len(list(after.parameters())) >= len(list(before.parameters())) - 2
    source, target = torch.randint(4, 44, (2, 50)), torch.randint(4, 44, (2, 58))
    want, got = (model(source, torch.tensor([50, 50]), target)[0] for model in (before, after))
    torch.testing.assert_close(got, want, atol=5e-5, rtol=1e-5)


SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1}
SIZES.update(encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=64)
SIZES.update(encoder_ffn_dim=40, decoder_ffn_dim=48, pad_token_id=1, eos_token_id=2)
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4, "n_positions": 64}
_T5.update(decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
_MARIAN = {"decoder_start_token_id": 42, "pad_token_id": 42, "eos_token_id": 0}
LEADING = ["<s>", "<pad>", "</s>", "<unk>"]
#: Symbols by families whose special ones are others than BART's.
SYMBOLS = {"Marian": ["</s>", "<unk>", *WORDS, "<pad>"], "T5": ["<pad>", "</s>", "<unk>", *WORDS]}
THEIRS = {
    "marian": ("hf-marian", "Marian", {**SIZES, **_MARIAN}),
    "bart": ("hf-bart", "Bart", {**SIZES, "scale_embedding": True}),
    "mbart": ("hf-mbart", "MBart", {**SIZES, "decoder_start_token_id": 5}),
    "m2m100": ("hf-m2m100", "M2M100", SIZES),
    "t5": ("hf-t5", "T5", {**_T5, "feed_forward_proj": "gated-gelu"}),
    "untied": ("hf-t5", "T5", {**_T5, "tie_word_embeddings": False}),
}


@torch.no_grad()
def their_model(transformers, folder, name):
    """A random model of transformers with its own gains, and more rows than symbols."""
    _, family, config = THEIRS[name]
    settings = getattr(transformers, f"{family}Config")(vocab_size=48, **config)
    ends = {"Marian": "MTModel"}.get(family, "ForConditionalGeneration")
    model = getattr(transformers, f"{family}{ends}")(settings).eval()
    if not config.get("tie_word_embeddings", True):
        model.lm_head.weight = torch.nn.Parameter(torch.randn(48, 32) / 4)
    for parameter in model.parameters():
        if parameter.requires_grad:  # Marian's table is constant
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    symbols = SYMBOLS.get(family, [*LEADING, *WORDS])
    content = {"model": {"vocab": {s: number for number, s in enumerate(symbols)}}}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return model, symbols


@pytest.mark.parametrize("name", THEIRS)
@torch.no_grad()
def test_their_models_compute_the_same_here(name, transformers, tmp_path, capsys):
    theirs, symbols = their_model(transformers, tmp_path / "theirs", name)
    convert("import", THEIRS[name][0], tmp_path / "theirs", tmp_path / "ours", "--verify")
    printed = capsys.readouterr().out
    left_out = 48 - len(symbols)
    assert "--arch posenc_transformer" in printed and f"left out {left_out} rows" in printed
    dictionary = str(tmp_path / "ours" / "dict.txt")
    ours = native.load(str(tmp_path / "ours" / "checkpoint.pt"), dictionary, TRANSLATION)
    known = Dictionary.load(dictionary)
    assert known.symbols == [*LEADING, *WORDS]
    source, target = torch.randint(4, len(known), (2, 50)), torch.randint(4, len(known), (2, 40))
    target[:, 0] = known.eos()
    order = torch.tensor([symbols.index(s if s in symbols else "<pad>") for s in known.symbols])
    inputs = order[target]
    inputs[:, 0] = start = theirs.config.decoder_start_token_id
    assert ("do not begin with </s>" in printed) == (symbols[start] != "</s>")
    want = theirs(input_ids=order[source], decoder_input_ids=inputs).logits[..., order]
    got = ours(source, torch.tensor([50, 50]), target)[0]
    torch.testing.assert_close(got, want, atol=3e-5, rtol=1e-4)


@torch.no_grad()
def test_marians_own_models_return_and_stay_right_when_saved_again(transformers, tmp_path):
    """The class saves no tables of positions and computes its own, so it gets no others."""
    their_model(transformers, tmp_path / "theirs", "marian")
    path = tmp_path / "ours" / "checkpoint.pt"
    convert("import", "hf-marian", tmp_path / "theirs", tmp_path / "ours")
    convert("export", "hf-marian", path, tmp_path / "back", "--verify")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "back").eval()
    model.save_pretrained(tmp_path / "again")
    again = transformers.MarianMTModel.from_pretrained(tmp_path / "again").eval()
    tokens = torch.randint(4, 44, (2, 50))
    want, got = (m(input_ids=tokens, decoder_input_ids=tokens).logits for m in (model, again))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    state = torch.load(path)
    state["model"]["decoder.embed_positions.weight"][5] += 1
    torch.save(state, path)
    words = ["positions of the decoder are not those that MarianMTModel", "hf-remote-code holds"]
    refuses(words, "export", "hf-marian", path, tmp_path / "changed")


@torch.no_grad()
def test_a_bias_of_the_output_is_refused(transformers, tmp_path):
    model, _ = their_model(transformers, tmp_path / "theirs", "marian")
    model.final_logits_bias[0, 7] = 1.0
    model.save_pretrained(tmp_path / "theirs")
    words = ["final_logits_bias is not zero; the output of fairseq's models has no bias"]
    refuses(words, "import", "hf-marian", tmp_path / "theirs", tmp_path / "ours")
