"""In every search of fairseq, hypotheses of a sentence share the keys of its source."""

import functools

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from fairseq.token_generation_constraints import pack_constraints
from support.helpers import PAD, VOCABULARY, sentences, tiny

from fairseq_posenc.attention import softmax

pytestmark = pytest.mark.properties


def batch_of(rows, seed=0):
    """Sentences of 3 to 9 tokens, padded on the left, whose searches end at different steps."""
    source = sentences(rows, 9, seed)
    for row in range(rows):
        source[row, : row % 7] = PAD
    return {"id": torch.arange(rows), "net_input": {"src_tokens": source, "src_lengths": None}}


def found(models, sample, beam=4, kind=SequenceGenerator, strategy=None, **given):
    """Tokens, scores and attention of all hypotheses of each sentence."""
    torch.manual_seed(0)
    chosen = None if strategy is None else strategy(VOCABULARY)
    generator = kind(models, VOCABULARY, beam_size=beam, max_len_b=12, search_strategy=chosen)
    sample["net_input"]["src_lengths"] = sample["net_input"]["src_tokens"].ne(PAD).sum(1)
    return [
        [
            (hypothesis["tokens"].tolist(), hypothesis["positional_scores"], hypothesis[weights])
            for hypothesis in best
            for weights in ("alignment", "attention")
        ]
        for best in generator.generate(models, sample, **given)
    ]


def same(one, other):
    for ours, theirs in zip(one, other):
        assert [tokens for tokens, _, _ in ours] == [tokens for tokens, _, _ in theirs]
        torch.testing.assert_close(
            [list(x[1:]) for x in ours], [list(x[1:]) for x in theirs], atol=2e-6, rtol=1e-5
        )


@pytest.fixture
def apart(monkeypatch):
    """A function that calls another one with source keys repeated for every hypothesis."""

    def run(function, *args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(softmax, "BEAM", "a key that no search writes")
            return function(*args, **kwargs)

    return run


def strategy(kind, **settings):
    return {"strategy": functools.partial(kind, **settings)}


CONSTRAINTS = pack_constraints([[sentences(1, 2, seed)[0]] for seed in range(5)])
SEARCHES = {
    "beam": {},
    "prefix": {"prefix_tokens": sentences(5, 3, seed=2)},
    "sampling": strategy(search.Sampling, sampling_topk=5),
    "diverse beams": strategy(search.DiverseBeamSearch, num_groups=2, diversity_strength=0.5),
    "diverse siblings": strategy(search.DiverseSiblingsSearch, diversity_rate=0.5),
    "constraints": {
        **strategy(search.LexicallyConstrainedBeamSearch, representation="ordered"),
        "constraints": CONSTRAINTS,
    },
    "alignment": {"kind": SequenceGeneratorWithAlignment},
}


@pytest.mark.parametrize("kind", SEARCHES)
def test_every_search_finds_what_it_finds_with_keys_for_every_hypothesis(kind, apart):
    models, sample = [tiny("rotary"), tiny("gated:tupe+t5")], batch_of(5)  # an ensemble
    if kind == "alignment":
        for model in models:
            model.decoder.full_context_alignment = False
        sample["target"] = sentences(5, 6, seed=3)
    same(found(models, sample, **SEARCHES[kind]), apart(found, models, sample, **SEARCHES[kind]))


@pytest.mark.parametrize("name", ["gated:rotary", "grouped:shaw", "favor:rotary"])
def test_a_number_of_hypotheses_belongs_to_one_generation(name, apart):
    """Searches with various beams, and batches of 1 to 7 sentences, alternate with scoring."""
    models = [tiny(name)]

    def scores(sample):
        target = torch.full((len(sample["id"]), 1), VOCABULARY.eos())
        net_input = {**sample["net_input"], "prev_output_tokens": target}
        scored = SequenceScorer(VOCABULARY).generate(
            models, {**sample, "net_input": net_input, "target": target}
        )
        return [(best[0]["tokens"].tolist(), best[0]["positional_scores"]) for best in scored]

    for rows, beam in enumerate([5, 1, 3, 1, 5, 3, 2], 1):
        sample = batch_of(rows, seed=beam)
        same(found(models, sample, beam), apart(found, models, sample, beam))
        assert scores(sample) == apart(scores, sample)


def test_keys_are_kept_once_for_each_sentence(monkeypatch):
    rows, project = [], softmax.CrossAttention._source

    def noted(*args):
        k, v = project(*args)
        rows.append((len(k), len(v)))
        return k, v

    monkeypatch.setattr(softmax.CrossAttention, "_source", noted)
    found([tiny("rotary")], batch_of(3))
    assert rows[0] == (3, 3)
    assert rows == sorted(rows, reverse=True)  # finished sentences leave the batch
