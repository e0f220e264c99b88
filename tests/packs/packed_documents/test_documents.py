"""--document-mask: each document of a packed sample has the same outputs as alone."""

import logging
from argparse import Namespace

import pytest
import torch
from fairseq.tasks import FairseqTask
from support.causal_language_models import tiny as language_model
from support.conversion import convert
from support.expressed import trained
from support.helpers import EVERY_ENCODING, LAYERS, PAD, VOCABULARY, causal_only
from support.masked_language_models import SMALL, build, masked_batch, tiny
from support.toy_lm import eval_lm, perplexity, train_lm

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import inherited_flags
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.models.masked_lm import MASKED_LM, MODEL
from fairseq_posenc.models.segments import PATIENCE
from fairseq_posenc.packs.packed_documents import documents as taking_apart
from fairseq_posenc.packs.packed_documents.stacks import check_documents

pytest_plugins = ("support.toy", "support.toy_lm", "support.conversion")
pytestmark = pytest.mark.properties
BOS, EOS, MARK = VOCABULARY.bos(), VOCABULARY.eos(), VOCABULARY.index("w50")
MASK = "--document-mask"


def masked_model(name, *flags):
    """A masked language model; *name* is ENCODING or LAYER:ENCODING."""
    layer, _, encoding = name.rpartition(":")
    return tiny(encoding, *LAYERS[layer], *flags)


def packed(make=language_model):
    """Three samples, one of them padded, of several documents with lengths from 1 to 13."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(4, len(VOCABULARY), (3, 20), generator=generator)
    tokens[:, 0] = EOS if make is language_model else BOS
    tokens[0, [5, 6, 14]] = tokens[1, [1, 13]] = tokens[2, 9] = EOS
    tokens[2, -3:] = PAD
    return tokens


def documents(tokens, make=language_model):
    """Yield the sample, start and end of each document, with a loop over the tokens.

    </s> is a document's last token or, in the shifted input of a language model, its first one.
    """
    for row, numbers in enumerate(tokens.tolist()):
        real = [place for place, number in enumerate(numbers) if number != PAD]
        marks = [p + (make is masked_model) for p in real if numbers[p] == EOS]
        edges = sorted({real[0], *marks, real[-1] + 1})
        yield from ((row, start, end) for start, end in zip(edges, edges[1:]))


KERNELS = [f"{name}:none" for name in ATTENTIONS if name != "softmax"]
KERNELS += ["gated:rotary", "squared_relu:rotary", "mixed_chunks:rotary", "local:alibi"]
#: every encoding, and every kernel, for encoders and for decoders
CASES = [(language_model, n) for n in [*EVERY_ENCODING, *KERNELS] if n != "linformer:none"]
CASES += [(masked_model, n) for n in [*EVERY_ENCODING, *KERNELS] if not causal_only(n)]
CASES += [
    (masked_model, "learned+rotary", "--causal"),
    (masked_model, "learned+rotary", "--mask-decoder-layers", "2"),
    *(
        (language_model, "sinusoidal+rotary", "--position-ids", *rule.split())
        for rule in ("segments --position-separators w9", "digits --position-digits w1")
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join([case[0].__name__, *case[1:]]))
@torch.no_grad()
def test_each_document_is_computed_alone(case):
    """In float64, although a few normalisers are always computed in float32."""
    make, name, *flags = case
    model, plain, tokens = make(name, MASK, *flags).double(), make(name, *flags), packed(make)
    plain.double().load_state_dict(model.state_dict())
    got = model(tokens)[0]
    for row, start, end in documents(tokens, make):
        alone = plain(tokens[row : row + 1, start:end])[0][0]
        torch.testing.assert_close(got[row, start:end], alone, atol=1e-8, rtol=1e-8)
    assert not torch.equal(plain(tokens)[0][0], got[0])


@pytest.mark.parametrize("make, length", [(language_model, 5), (masked_model, 6)])
@torch.no_grad()
def test_states_between_layers_are_those_of_the_document_alone(make, length):
    model, tokens = make("tupe+t5", MASK), packed(masked_model)
    more = {} if make is language_model else {"return_all_hiddens": True}
    states, alone = (
        model.double()(batch, **more)[1]["inner_states"] for batch in (tokens, tokens[:1, :length])
    )
    assert len(states) == len(alone) == 3
    for state, expected in zip(states, alone):
        torch.testing.assert_close(state[:length, :1], expected, atol=1e-8, rtol=1e-8)


@torch.no_grad()
def test_the_cache_holds_the_last_document_alone():
    model, state = language_model("rotary", MASK), {}
    for step in range(1, 18):
        model.decoder(packed()[:1, :step], incremental_state=state)
    assert model.decoder.cached_length(state) == 3  # since position 14


@torch.no_grad()
def test_the_stack_alone_does_not_mix_documents():
    model, tokens = masked_model("rotary", MASK), packed(masked_model)
    features = model.encoder.extract_features(tokens)[0]
    assert torch.equal(features, model(tokens, features_only=True)[0])
    with pytest.raises(UsageError, match="--document-mask: .* call the model, or extract_feat"):
        model.encoder.sentence_encoder(tokens)


@torch.no_grad()
def test_separators_that_a_generator_writes_end_no_document(monkeypatch):
    """In ELECTRA's discriminator, the original tokens determine the documents."""
    electra = pytest.importorskip("fairseq_posenc.packs.pretraining.electra")
    flags = ["--position-encoding", "rotary", *SMALL, "--generator-size", "0.5", MASK]
    model, tokens = build("posenc_electra", *flags), packed(masked_model)
    monkeypatch.setattr(electra, "sample_tokens", lambda *a, **k: torch.tensor([EOS]))
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    asked[0, 2] = True  # in the first document, which has six tokens
    before = model(tokens, masked_tokens=asked)[1]["replaced"][0]
    tokens[0, 4] = 9
    changed = before.ne(model(tokens, masked_tokens=asked)[1]["replaced"][0])
    assert changed[:6].all() and not changed[6:].any()


# --- where documents end


@pytest.mark.parametrize(
    "make, ends", [(language_model, [0, 5, 6, 9, 12]), (masked_model, [0, 6, 7, 10, 13])]
)
def test_documents_may_end_at_empty_lines_and_other_marks(make, ends):
    model = make("rotary", MASK, "--position-separators", "</s></s> w50")
    stack = model.decoder if make is language_model else model.encoder.sentence_encoder
    tokens = torch.tensor([[9, EOS, 8, 7, EOS, EOS, EOS, 6, EOS, EOS, 5, EOS, MARK, 4, PAD]])
    assert stack.documents.begins(tokens)[0].nonzero().flatten().tolist() == ends


def test_masks_and_random_tokens_change_no_document():
    """A masked </s> still ends a document; a random </s> does not."""
    tokens, model = packed(masked_model), masked_model("rotary", MASK)
    asked = tokens.eq(EOS)
    asked[0, 2] = True
    sample = masked_batch(tokens, asked)
    sample["net_input"]["src_tokens"][0, 2] = EOS
    FairseqTask.valid_step(None, sample, model, lambda model, sample: (0, 0, {}))
    begins = model.encoder.sentence_encoder.documents.begins
    starts = begins(sample["net_input"]["original"]).nonzero().tolist()
    assert starts == sorted([row, start] for row, start, _ in documents(tokens, masked_model))


def test_training_without_a_boundary_says_so_once(caplog):
    model = language_model("rotary", MASK).train()
    with caplog.at_level(logging.WARNING):
        for _ in range(2 * PATIENCE):
            model(packed()[:, 7:9])
    found = [record.message for record in caplog.records if MASK in record.message]
    assert len(found) == 1 and "--position-separators" in found[0]


@pytest.mark.parametrize("task", ["sentence_prediction", "sentence_ranking"])
def test_fine_tuning_neither_inherits_nor_takes_the_flag(task):
    family, cfg, settings = MASKED_LM.dataclass, Namespace(document_mask=True), Namespace(task=task)
    assert "document_mask" not in inherited_flags(family, Namespace(**defaults_of(family)))
    with pytest.raises(UsageError, match=f"{MASK}: the samples of --task {task} are not packed"):
        check_documents(Completed(cfg, MODEL, [], settings, fresh=True, patterns={}))


def test_fully_sharded_layers_are_refused(monkeypatch):
    """Layers run once per group of documents, so processes with more groups would wait forever."""
    monkeypatch.setattr(taking_apart, "FullyShardedDataParallel", torch.nn.Module)
    with pytest.raises(UsageError, match=f"{MASK}: cannot be combined with --ddp-backend fully_sh"):
        language_model.__wrapped__("rotary", MASK)


# --- in fairseq's commands: the perplexity is the same as for separate documents

WHOLE = ["--tokens-per-sample", "60", "--max-target-positions", "128"]


@pytest.fixture(scope="module")
def checkpoint(corpus, once):
    """A language model after three epochs on packed samples; each line is a document."""
    flags = ["--position-encoding", "learned+t5", "--document-mask", "--max-epoch", "3"]
    flags += [*WHOLE, "--sample-break-mode", "complete"]
    folder = once("document_mask", lambda folder: train_lm(corpus, folder, "posenc_lm", *flags))
    return folder / "checkpoint_last.pt"


@pytest.mark.journeys
@pytest.mark.parametrize(
    "packed",
    [
        ["--sample-break-mode", "complete"],
        # no line is longer than this context
        ["--sample-break-mode", "none", "--context-window", "40"],
    ],
)
def test_perplexity_is_that_of_each_document_alone(packed, corpus, checkpoint):
    given = ["--model-overrides", "{'max_target_positions': 128}", *WHOLE]
    alone = perplexity(eval_lm(corpus, checkpoint, *given, "--sample-break-mode", "eos"))
    assert perplexity(eval_lm(corpus, checkpoint, *given, *packed)) == alone
    without = ["--model-overrides", "{'max_target_positions': 128, 'document_mask': False}"]
    assert perplexity(eval_lm(corpus, checkpoint, *WHOLE, *without, *packed)) != alone


PACKED = {"document_mask": True, "position_separators": "</s></s>"}


@pytest.mark.journeys
@pytest.mark.parametrize(
    "name, package, further",
    [
        ("hf-roformer", "transformers", ["--verify"]),
        ("onnx", "onnxruntime", []),
        ("ctranslate2", "ctranslate2", []),
    ],
)
def test_exports_say_that_a_text_is_one_document(name, package, further, request, tmp_path, capsys):
    pytest.importorskip(package, reason="the format needs it")
    if "--verify" in further:
        request.getfixturevalue("transformers")  # skips if transformers cannot use PyTorch
    path = trained(tmp_path / "ours", position_encoding="rotary", **PACKED)
    convert("export", name, path, tmp_path / "out", *further)
    assert "the exported model treats each text as one document" in capsys.readouterr().out
