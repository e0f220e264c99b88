"""--document-mask: each document of a packed sample is computed as if it were alone."""

import pytest
import torch
from support.causal_language_models import tiny as language_model
from support.helpers import EVERY_ENCODING, LAYERS, PAD, VOCABULARY, causal_only
from support.masked_language_models import SMALL, build, tiny

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError

pytestmark = pytest.mark.properties
EOS = VOCABULARY.eos()
MASK = "--document-mask"
KERNELS = [f"{name}:none" for name in ATTENTIONS if name != "softmax"]
KERNELS += ["gated:rotary", "squared_relu:rotary", "mixed_chunks:rotary", "local:alibi"]
#: every encoding, and every kernel, for encoders and for decoders
BOTH = [name for name in [*EVERY_ENCODING, *KERNELS] if not causal_only(name)]
CAUSAL = [name for name in [*EVERY_ENCODING, *KERNELS] if name != "linformer:none"]
#: kernels and encodings that keep different things in the cache
CACHED = ["learned", "rotary", "tupe+t5", "deberta", "cope", "fox", "shaw_values:rotary+shaw"]
CACHED += ["elu:rotary", "favor:rotary", "local:rotary", "bigbird:t5", "mixed_chunks:rotary"]


def packed(begin=EOS):
    """Three samples of several documents, one of them padded, of lengths from 1 to 13."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(4, len(VOCABULARY), (3, 20), generator=generator)
    tokens[:, 0] = begin
    tokens[0, [5, 6, 14]] = tokens[1, [1, 13]] = tokens[2, 9] = EOS
    tokens[2, -3:] = PAD
    return tokens


def documents(tokens, causal):
    """Sample, first place and end of each document, by a loop over the tokens."""
    for row, numbers in enumerate(tokens.tolist()):
        real = [place for place, number in enumerate(numbers) if number != PAD]
        marks = [p if causal else p + 1 for p in real if numbers[p] == EOS]
        edges = sorted({real[0], *marks, real[-1] + 1})
        yield from ((row, start, end) for start, end in zip(edges, edges[1:]))


def masked_model(name, *flags):
    """A masked language model; *name* is ENCODING or LAYER:ENCODING."""
    layer, _, encoding = name.rpartition(":")
    return tiny(encoding, *LAYERS[layer], *flags)


def assert_alone(make, name, *flags, tokens=None, causal=True):
    """In float64, logits are those of each document alone; a few normalisers stay in float32."""
    model, plain = make(name, MASK, *flags).double(), make(name, *flags).double()
    plain.load_state_dict(model.state_dict())
    got = model(tokens)[0]
    for row, start, end in documents(tokens, causal):
        alone = plain(tokens[row : row + 1, start:end])[0][0]
        torch.testing.assert_close(got[row, start:end], alone, atol=1e-8, rtol=1e-8)
    assert not torch.equal(plain(tokens)[0][0], got[0])


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_a_language_model_computes_each_document_alone(name):
    assert_alone(language_model, name, tokens=packed())


@pytest.mark.parametrize("name", BOTH)
@torch.no_grad()
def test_a_masked_language_model_computes_each_document_alone(name):
    assert_alone(masked_model, name, tokens=packed(VOCABULARY.bos()), causal=False)


@pytest.mark.parametrize("extra", [["--causal"], ["--mask-decoder-layers", "2"]])
@torch.no_grad()
def test_other_masked_language_models(extra):
    """Their input is not moved by one, even if no token sees later ones."""
    tokens = packed(VOCABULARY.bos())
    assert_alone(masked_model, "learned+rotary", *extra, tokens=tokens, causal=False)


@pytest.mark.parametrize("rule", ["segments", "digits"])
@torch.no_grad()
def test_other_positions_are_those_of_each_document_alone(rule):
    marks = {
        "segments": ["--position-separators", "w9 w30"],
        "digits": ["--position-digits", "w1 w2 w3"],
    }
    flags = ["--position-ids", rule, *marks[rule]]
    assert_alone(language_model, "sinusoidal+rotary", *flags, tokens=packed())


@pytest.mark.parametrize("further", [["--random-positions", "40"], ["--decoder-layerdrop", "0.5"]])
def test_training_with_what_is_drawn(further):
    model = language_model("sinusoidal+rotary", MASK, *further).train()
    out = model(packed())[0]
    out.sum().backward()
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("make", [language_model, masked_model])
def test_parameters_and_outputs_of_one_document_are_those_without_the_flag(make):
    model, plain = make("tupe+t5", MASK), make("tupe+t5")
    plain.load_state_dict(model.state_dict())
    tokens = packed(VOCABULARY.bos())[:, :5]
    tokens[1, 1], tokens[2, 3:] = 9, PAD
    assert torch.equal(model(tokens)[0], plain(tokens)[0])


@pytest.mark.parametrize("name", ["rotary", "alibi", "deberta"])
@pytest.mark.parametrize("further", [[], ["--checkpoint-activations"]])
def test_gradients_are_the_sums_of_those_of_the_documents(name, further):
    model, tokens = language_model(name, MASK, *further).train(), packed()
    weights = torch.randn(
        *tokens.shape, len(VOCABULARY), generator=torch.Generator().manual_seed(1)
    )

    def gradients(pieces):
        model.zero_grad()
        for row, start, end in pieces:
            out = model(tokens[row : row + 1, start:end])[0]
            (out * weights[row : row + 1, start:end]).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    samples = [(row, 0, int(tokens[row].ne(PAD).sum())) for row in range(3)]
    together, alone = gradients(samples), gradients(documents(tokens, causal=True))
    assert together.keys() == alone.keys()
    for parameter, value in together.items():
        torch.testing.assert_close(value, alone[parameter], atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_states_between_layers_are_returned_in_evaluation():
    # </s> begins a document of the one and ends one of the other
    for make, length in ((language_model, 5), (masked_model, 6)):
        model, tokens = make("rotary", MASK).double(), packed(VOCABULARY.bos())
        more = {} if make is language_model else {"return_all_hiddens": True}
        states = model(tokens, **more)[1]["inner_states"]
        alone = model(tokens[:1, :length], **more)[1]["inner_states"]
        assert len(states) == len(alone) == 3
        for state, expected in zip(states, alone):
            torch.testing.assert_close(state[:length, :1], expected, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("name", CACHED)
@torch.no_grad()
def test_beam_search_may_reorder_hypotheses(name):
    """tests/models/test_language_model.py has several tokens at a time, and padding."""
    model, tokens, state = language_model(name, MASK), packed(), {}
    tokens[2, -3:] = 9
    for step in range(1, 21):
        out, _ = model.decoder(tokens[:, :step], incremental_state=state)
        full = model(tokens[:, :step])[0]
        torch.testing.assert_close(out[:, -1], full[:, -1], atol=1e-5, rtol=0)
        order = torch.tensor([[1, 0, 2], [2, 2, 0]][step % 2])
        tokens = torch.cat((tokens[order, :step], tokens[:, step:]), dim=1)
        model.decoder.reorder_incremental_state_scripting(state, order)


@torch.no_grad()
def test_the_cache_holds_the_last_document_alone():
    model, state = language_model("rotary", MASK), {}
    tokens = packed()[:1]
    for step in range(1, 18):
        model.decoder(tokens[:, :step], incremental_state=state)
    assert model.decoder.cached_length(state) == 3  # from place 14 on


@torch.no_grad()
def test_the_stack_alone_does_not_mix_documents():
    model, tokens = masked_model("rotary", MASK), packed(VOCABULARY.bos())
    features = model.encoder.extract_features(tokens)[0]
    assert torch.equal(features, model(tokens, features_only=True)[0])
    with pytest.raises(UsageError, match="--document-mask: .* call the model, or extract_feat"):
        model.encoder.sentence_encoder(tokens)


@torch.no_grad()
def test_separators_that_a_generator_writes_end_no_document(monkeypatch):
    """ELECTRA's discriminator has the documents of the original tokens."""
    electra = pytest.importorskip("fairseq_posenc.packs.pretraining.electra")
    flags = ["--position-encoding", "rotary", *SMALL, "--generator-size", "0.5", MASK]
    model, tokens = build("posenc_electra", *flags), packed(VOCABULARY.bos())
    monkeypatch.setattr(electra, "sample_tokens", lambda *a, **k: torch.tensor([EOS]))
    asked = torch.zeros_like(tokens, dtype=torch.bool)
    asked[0, 2] = True  # in the first document, of six tokens
    before = model(tokens, masked_tokens=asked)[1]["replaced"][0]
    tokens[0, 4] = 9
    after = model(tokens, masked_tokens=asked)[1]["replaced"][0]
    changed = before.ne(after)
    assert changed[:6].all() and not changed[6:].any()
