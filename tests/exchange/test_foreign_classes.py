"""Random models of transformers, in and out, whatever their symbols, rows, padding and heads."""

import pytest
import torch
from support.conversion import SYMBOLS, convert, load
from support.expressed import HAS_PLACE, RATES
from support.their_models import KNOWN, OF_CAUSAL, THEIRS, their_model

from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.models.language_model import LanguageModel


def batch(length):
    """Texts by their numbers in SYMBOLS, of *length* tokens and fewer, padded on either side."""
    ids = torch.randint(5, len(SYMBOLS), (3, length), generator=torch.Generator().manual_seed(2))
    ids[:2, 0] = 3
    ids[1, length // 2 :] = 0
    ids[2, : length // 3] = 0
    ids[2, length // 3] = 3
    return ids


def both_logits(theirs, ours, order, symbols, config, length):
    """Logits of real tokens, or of texts, in their order of symbols."""
    known = len(symbols)
    if theirs.config.is_encoder_decoder:
        ids = torch.randint(4, 40, (2, length))
        inputs, target = ids.clone(), order[ids]
        inputs[:, 0], target[:, 0] = theirs.config.decoder_start_token_id, 2
        want = theirs(input_ids=ids, decoder_input_ids=inputs).logits[..., :known]
        return want, ours(order[ids], torch.tensor([length] * 2), target)[0][..., order]
    if symbols is not SYMBOLS or isinstance(ours, LanguageModel):
        ids = torch.randint(5 if symbols is SYMBOLS else 0, known, (2, length))
        return theirs(input_ids=ids).logits[..., :known], ours(order[ids])[0][..., order]
    ids = batch(length)
    real, labels = ids.ne(0), None
    given = {"attention_mask": real.long()}
    if hasattr(theirs.config, "type_vocab_size") and theirs.config.type_vocab_size > 1:
        given["token_type_ids"] = labels = ids.gt(6).long()
    heads = [*getattr(ours, "classification_heads", ()), *getattr(ours, "token_heads", ())]
    head = {"classification_head_name": heads[0]} if heads else {}
    want = theirs(input_ids=ids, **given).logits
    have, _ = ours(order[ids], segment_labels=labels, **head)
    want, have = (want, have) if heads else (want[..., :known], have[..., order])
    if config.get("rotary_value"):  # positions of values are not relative: no padding in front
        real[2] = False
    if want.dim() == 2:  # the first of a row is [CLS] unless padding is there
        real = torch.tensor([True, True, config.get("classifier_pooling") == "mean"])
    return want[real], have[real]


@pytest.mark.parametrize("name", THEIRS)
@torch.no_grad()
def test_their_models_compute_the_same_here_and_return(name, transformers, tmp_path, capsys):
    target, architecture, config, (symbols, _), settings = row = THEIRS[name]
    theirs = their_model(transformers, tmp_path / "theirs", row)
    convert("import", target, tmp_path / "theirs", tmp_path / "ours", "--verify")
    printed = capsys.readouterr().out
    assert f"largest difference from {architecture}" in printed
    assert f"left out {-len(symbols) % 8} rows" in printed
    zeros = "2 symbols of fairseq's that it lacks start as zeros" in printed
    assert zeros == (symbols is OF_CAUSAL[0])
    saved = load_file(tmp_path / "ours" / "checkpoint.pt")
    settings = {**settings, **{rate: RATES[rate] for rate in HAS_PLACE[target]}}
    assert {key: saved["cfg"]["model"][key] for key in settings} == settings
    assert f"--arch {saved['cfg']['model']['_name']}" in printed
    ours, dictionary = load(tmp_path / "ours")
    order = torch.tensor([dictionary.index(KNOWN.get(symbol, symbol)) for symbol in symbols])
    for length in (4, 48):  # within a window, and beyond it
        want, have = both_logits(theirs, ours, order, symbols, config, length)
        torch.testing.assert_close(have, want, atol=3e-5, rtol=1e-4)
    other_start = False
    if theirs.config.is_encoder_decoder:
        other_start = symbols[theirs.config.decoder_start_token_id] != "</s>"
    assert ("do not begin with </s>" in printed) == other_start
    if other_start and target != "hf-marian":
        return  # its decoder has another embedding here, for which the class has no place
    convert("export", target, tmp_path / "ours" / "checkpoint.pt", tmp_path / "back", "--verify")
    convert("import", target, tmp_path / "back", tmp_path / "again")
    again = load_file(tmp_path / "again" / "checkpoint.pt")
    assert again["cfg"]["model"] == saved["cfg"]["model"]
    assert all(torch.equal(value, again["model"][key]) for key, value in saved["model"].items())
