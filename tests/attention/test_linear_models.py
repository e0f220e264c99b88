"""Models with linear attention: what they refuse, and their random features.

The properties that every layer has are in test_properties.py.
"""

import pytest
import torch
from support.helpers import (
    LINEAR,
    ROTATING,
    TINY,
    VOCABULARY,
    assert_causal,
    build,
    decode_in_steps,
    model_settings,
    sentences,
    tiny,
)
from support.linear_layers import PERFORMER, projections
from support.masked_language_models import tiny as masked_lm

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.stacks import masked_lm_stack
from tests.checkpoints.test_warm_start import load

ADDING = ["t5", "alibi", "tupe", "shaw", "transformer_xl", "deberta", "bert_ad", "rotary+t5"]
every_kernel = pytest.mark.parametrize("attention", LINEAR)


B, T = 3, 9


class TestRefusals:
    @every_kernel
    @pytest.mark.parametrize("encoding", ADDING)
    def test_encodings_that_add_logits(self, attention, encoding):
        name = encoding.rpartition("+")[2]
        acts = "transforms queries" if name == "bert_ad" else "adds to logits"
        words = f"--attention {attention}: --position-encoding {name} {acts}"
        with pytest.raises(UsageError, match=words):
            tiny(encoding, "--attention", attention)

    @pytest.mark.parametrize("flags", [["--rotary-value"], ["--favor-features", "7"]])
    def test_they_work_on_inputs(self, flags):
        inputs = ["--attention", "favor", "--linear-rotary", "inputs"]
        out, _ = tiny("rotary", *inputs, *flags)(sentences(B, 7), None, sentences(B, T))
        assert torch.isfinite(out).all()


class TestRotatedInputs:
    """Not relative: the feature map is between the rotation and the product."""

    @every_kernel
    @torch.no_grad()
    def test_padding_and_cache(self, attention):
        model = tiny("rotary", "--attention", attention, "--linear-rotary", "inputs")
        assert not model.encoder.encoding.relative
        source, target = sentences(B, 7), sentences(B, T, seed=1)
        full, _ = model(source, None, target)
        for steps in ([1] * T, [4, 1, 4]):
            got = decode_in_steps(model, source, target, steps)
            torch.testing.assert_close(got, full, atol=1e-5, rtol=0)
        gap = torch.full((B, 3), VOCABULARY.pad())
        for padded in (torch.cat((gap, source), 1), torch.cat((source, gap), 1)):
            got, _ = model(padded, None, target)
            torch.testing.assert_close(got, full, atol=1e-5, rtol=0)
        left, _ = model(source, None, torch.cat((gap, target), 1))
        torch.testing.assert_close(left[:, 3:], full, atol=1e-5, rtol=0)


class TestFamilies:
    def test_the_rotary_table_has_the_size_of_what_it_turns(self):
        flags = ["--attention", "favor", "--favor-features", "20"]
        for more, size in ([], 20), (["--linear-rotary", "inputs"], 8):
            model = tiny("rotary", *flags, *more)
            table = model.encoder.encoding.transform.table(torch.arange(3)[None])
            assert table.size(-1) == size // 2

    @every_kernel
    @torch.no_grad()
    def test_a_causal_masked_lm_sees_no_later_token(self, attention):
        encoding = "rotary" if attention in ROTATING else "none"
        model = masked_lm(encoding, "--causal", "--attention", attention)
        assert masked_lm_stack(model.args).causal
        tokens, other = sentences(B, T), sentences(B, T, seed=9)
        assert_causal(lambda tokens: model(tokens)[0], tokens, other, [5])

    @pytest.mark.parametrize(
        "arch, task, side",
        [
            ("performer_base", "translation", "decoder"),
            ("performer_masked_lm_base", "masked_lm", "encoder"),
            ("performer_lm_enwik8", "language_modeling", "decoder"),
        ],
    )
    def test_presets_have_rotary_unless_another_encoding_is_named(self, arch, task, side):
        cfg = model_settings(arch, task=task)
        assert (cfg.position_encoding, cfg.attention) == ("rotary", "favor")
        other = model_settings(arch, "--position-encoding", "sinusoidal", task=task)
        assert (other.position_encoding, other.attention) == ("sinusoidal", "favor")
        if arch == "performer_lm_enwik8":  # RoFormer section 4.4
            names = ("layers", "embed_dim", "attention_heads")
            assert [cfg[f"{side}_{name}"] for name in names] == [12, 768, 12]

    def test_no_mask_grows_with_the_square_of_the_length(self, monkeypatch):
        model, seen = tiny("favor:rotary"), []
        for stack in (model.encoder, model.decoder):

            def noting(*given, plain=stack.positions.prepare):
                found = plain(*given)
                seen.extend((each["hidden"], each["causal"]) for each in found.values())
                return found

            monkeypatch.setattr(stack.positions, "prepare", noting)
        source, target = sentences(B, 7), sentences(B, T)
        source[0, :2] = target[0, :2] = VOCABULARY.pad()
        model(source, None, target)
        assert [(tuple(hidden.shape), causal) for hidden, causal in seen] == [
            ((B, 7, 1, 1), False),
            ((B, T, 1, 1), True),
        ]


class TestRandomFeatures:
    def test_every_layer_has_its_own_and_every_process_the_same(self):
        first = projections(tiny("favor:rotary").state_dict())
        torch.manual_seed(5)
        second = projections(tiny("favor:rotary").state_dict())
        other = projections(tiny("favor:rotary", "--favor-seed", "2").state_dict())
        assert len(first) == 4 and first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert not any(torch.equal(first[key], other[key]) for key in first)
        assert len({value.numpy().tobytes() for value in first.values()}) == 4

    def test_building_a_model_leaves_pytorchs_random_numbers_as_softmax_does(self):
        states = []
        for attention in ("softmax", "favor"):
            torch.manual_seed(3)
            tiny("rotary", "--attention", attention)
            states.append(torch.get_rng_state())
        assert torch.equal(*states)

    def test_layer_drop_does_not_change_their_order(self):
        drop = ["--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5"]
        for seed in range(5):
            torch.manual_seed(seed)
            dropped = projections(build(*PERFORMER[1:2], *TINY, *drop).state_dict())
            kept = projections(build(*PERFORMER[1:2], *TINY).state_dict())
            assert all(torch.equal(dropped[key], kept[key]) for key in kept)

    def test_fairseqs_hook_reaches_them(self):
        model = tiny("favor:rotary", "--favor-redraw", "3", "--checkpoint-activations")
        before = {k: v.clone() for k, v in projections(model.state_dict()).items()}
        model.set_num_updates(2)
        assert all(torch.equal(before[k], v) for k, v in projections(model.state_dict()).items())
        model.set_num_updates(3)
        after = projections(model.state_dict())
        assert not any(torch.equal(before[key], value) for key, value in after.items())

    def test_a_softmax_model_continues_as_a_performer_and_back(self, caplog):
        softmax, performer = tiny("rotary"), tiny("favor:rotary")
        fresh = {k: v.clone() for k, v in projections(performer.state_dict()).items()}
        messages = load(performer, softmax.state_dict(), caplog)
        assert sum("feature_map.projection" in m and "untrained" in m for m in messages) == 4
        assert all(torch.equal(fresh[k], v) for k, v in projections(performer.state_dict()).items())
        caplog.clear()
        messages = load(tiny("rotary"), performer.state_dict(), caplog)
        assert sum("left out" in m for m in messages) == 4
