"""Models with linear attention: what they refuse, their random features, and real commands.

The properties that every layer has are in test_properties.py.
"""

import re

import pytest
import test_commands_masked_lm as masked_lm
import torch
from commands import SMALL, TRAINING, USER_DIR, average, generate, posenc, read, run, train
from fairseq import models
from helpers import (
    LINEAR,
    ROTATING,
    TINY,
    VOCABULARY,
    TranslationTask,
    build,
    model_settings,
    sentences,
    skip_without_cpu_kernels,
    tiny,
)
from test_commands_distributed import train_together
from test_commands_tasks import INTO_TGT, PAIRS
from test_properties import B, T, decode_in_steps
from test_warm_start import load

from fairseq_posenc.attention.linear.random_features import orthogonal_rows
from fairseq_posenc.config.stacks import masked_lm_stack
from fairseq_posenc.errors import UsageError

pytest_plugins = ["toy"]
corpora = masked_lm.corpora

ADDING = ["t5", "alibi", "tupe", "shaw", "transformer_xl", "deberta", "bert_ad", "rotary+t5"]
every_kernel = pytest.mark.parametrize("attention", LINEAR)
PERFORMER = ["--arch", "performer_tiny", *SMALL]


class Task:
    """The little of a masked-LM or language-modelling task that building a model needs."""

    source_dictionary = target_dictionary = VOCABULARY


def projections(state):
    return {key: value for key, value in state.items() if key.endswith(".projection")}


class TestRefusals:
    @every_kernel
    @pytest.mark.parametrize("encoding", ADDING)
    def test_encodings_that_add_logits(self, attention, encoding):
        name = encoding.rpartition("+")[2]
        words = f"--attention {attention}: --position-encoding {name} adds to logits"
        with pytest.raises(UsageError, match=words):
            tiny(encoding, "--attention", attention)

    @pytest.mark.parametrize(
        "flags, words",
        [
            (["--attention", "linear"], "--attention linear: must be softmax or "),
            (["--attention", "elu", "--layer", "gated"], "--attention elu: gated attention units"),
            (["--linear-rotary", "both"], "--linear-rotary both: must be features or inputs"),
            (
                ["--favor-kernel", "elu"],
                "--favor-kernel elu: must be softmax or hyperbolic or relu",
            ),
            (["--attention", "elu", "--rotary-value"], "--rotary-value: only features"),
            (["--attention", "favor", "--favor-features", "7"], "make it even by --favor-features"),
            (
                ["--attention", "favor", "--favor-kernel", "hyperbolic", "--favor-features", "7"],
                "--favor-features 7: --favor-kernel hyperbolic has them in pairs",
            ),
            (["--favor-features", "0"], "--favor-features 0: must be at least 1"),
            (["--favor-redraw", "-1"], "--favor-redraw -1: must be at least 0"),
            (["--linear-epsilon", "0"], "--linear-epsilon 0.0: must be at least 1.17549e-38"),
            (["--linear-epsilon", "1e-50"], "--linear-epsilon 1e-50: must be at least 1.17549e-38"),
            (
                ["--attention", "favor", "--favor-redraw", "9", "--favor-redraw-until", "5"],
                "--favor-redraw-until 5: is before the first redraw, at update 9",
            ),
            (
                ["--attention", "elu", "--rotary-scaling", "yarn", "--rotary-scaling-factor", "2"],
                "--rotary-scaling yarn: its temperature",
            ),
            (["--attention", "cosformer"], "--attention cosformer: its features are often 0"),
            (
                ["--attention", "cosformer", "--position-encoding", "none"]
                + ["--cosformer-length", "1023"],
                "--cosformer-length 1023: inputs can have 1024 tokens",
            ),
            (
                ["--attention", "favor", "--favor-redraw", "5", "--store-ema"],
                "--favor-redraw 5: --store-ema would average",
            ),
        ],
    )
    def test_flags_that_cannot_work(self, flags, words):
        with pytest.raises(UsageError, match=re.escape(words)):
            tiny("rotary", *flags)

    @pytest.mark.parametrize("flags", [["--rotary-value"], ["--favor-features", "7"]])
    def test_they_work_on_inputs(self, flags):
        inputs = ["--attention", "favor", "--linear-rotary", "inputs"]
        out, _ = tiny("rotary", *inputs, *flags)(sentences(B, 7), None, sentences(B, T))
        assert torch.isfinite(out).all()


class TestCosformer:
    FLAGS = ["--attention", "cosformer", "--max-source-positions", "20"]
    FLAGS += ["--max-target-positions", "12"]

    def test_its_length_is_the_longest_input_and_is_kept(self):
        settings = model_settings("posenc_transformer", "--position-encoding", "none", *self.FLAGS)
        assert settings.cosformer_length == 20
        settings.max_source_positions = 10  # as in an evaluation with other limits
        models.build_model(settings, TranslationTask())
        assert settings.cosformer_length == 20

    def test_longer_sequences_are_refused(self):
        model = tiny("none", *self.FLAGS)
        model.decoder(sentences(B, 20), features_only=True, encoder_out=None)
        with pytest.raises(UsageError, match="--cosformer-length 20: a sequence has 21 tokens"):
            model.encoder(sentences(B, 21))


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
        sizes = ["--encoder-layers", "2", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim"]
        sizes += ["16", "--encoder-attention-heads", "2", "--tokens-per-sample", "64"]
        encoding = "rotary" if attention in ROTATING else "none"
        flags = ["--causal", "--attention", attention, "--position-encoding", encoding, *sizes]
        cfg = model_settings("roformer_masked_lm_tiny", *flags, task="masked_lm")
        assert masked_lm_stack(cfg).causal
        model = models.build_model(cfg, Task()).eval()
        tokens = sentences(B, T)
        changed = tokens.clone()
        changed[:, 5:] = sentences(B, T - 5, seed=9)
        before, after = model(tokens)[0], model(changed)[0]
        assert torch.equal(before[:, :5], after[:, :5])
        assert not torch.equal(before[:, 5:], after[:, 5:])

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
        plain = model.encoder.kernel.masks
        noting = staticmethod(lambda *a: seen.append(plain(*a)) or plain(*a))
        monkeypatch.setattr(model.encoder.kernel, "masks", noting)
        source, target = sentences(B, 7), sentences(B, T)
        source[0, :2] = target[0, :2] = VOCABULARY.pad()
        model(source, None, target)
        assert [(tuple(bias.shape), causal) for bias, causal in seen] == [
            ((B, 1, 1, 7), False),
            ((B, 1, 1, T), True),
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


class TestCommands:
    @pytest.mark.parametrize(
        "attention, encoding",
        [(name, e) for name in ROTATING for e in ("sinusoidal", "rotary")]
        + [(name, "none") for name in LINEAR if name not in ROTATING],
    )
    def test_every_kernel_trains_and_generates(self, attention, encoding, toy, tmp_path):
        flags = ["--arch", "posenc_transformer", "--position-encoding", encoding, *SMALL]
        run = train(toy.separate, tmp_path, *flags, "--attention", attention)
        assert len(run.losses()) == 6
        _, settings = read(tmp_path / "checkpoint_last.pt")
        assert settings["attention"] == attention
        found = generate(toy.separate, tmp_path / "checkpoint_last.pt").hypotheses()
        assert sorted(found) == list(range(24))

    def test_several_languages(self, toy, tmp_path):
        flags = ["--task", "multilingual_translation", *PAIRS, "--attention", "favor"]
        train(toy.separate, tmp_path, "--arch", "multilingual_roformer", *SMALL, *flags)
        parameters, _ = read(tmp_path / "checkpoint_last.pt")
        assert projections(parameters)
        asked = ["--task", "multilingual_translation", *INTO_TGT, "--gen-subset", "valid"]
        found = generate(toy.separate, tmp_path / "checkpoint_last.pt", *asked).hypotheses()
        assert sorted(found) == list(range(12))

    def test_alignments_are_those_of_the_attention_to_the_source(self, toy, tmp_path):
        flags = ["--arch", "roformer_align", *SMALL, "--alignment-layer", "1"]
        train(toy.separate, tmp_path, *flags, "--attention", "elu")
        found = generate(toy.separate, tmp_path / "checkpoint_last.pt", "--print-alignment")
        assert len(found.hypotheses()) == 24 and "\nA-0\t" in found.out

    def test_resuming_with_redraws_changes_no_loss(self, toy, tmp_path):
        """Stopped at an update at which they are due, and at one at which they are not."""
        flags = [*PERFORMER, "--favor-redraw", "3", "--update-epoch-batch-itr", "True"]
        flags += ["--max-epoch", "2"]
        whole = train(toy.separate, tmp_path / "whole", *flags).losses()
        still = train(toy.separate, tmp_path / "still", *flags, "--favor-redraw", "0").losses()
        assert whole["update 3"] == still["update 3"] and whole["update 4"] != still["update 4"]
        in_parts = {}
        for updates in ("3", "5", "0"):
            run = train(toy.separate, tmp_path / "parts", *flags, "--max-update", updates)
            in_parts.update({k: v for k, v in run.losses().items() if k.startswith("update")})
        assert in_parts == {k: v for k, v in whole.items() if k.startswith("update")}

    def test_two_processes_draw_the_same(self, toy, tmp_path):
        flags = [*PERFORMER, "--favor-redraw", "2", "--dropout", "0", "--batch-size", "6"]
        flags += ["--update-epoch-batch-itr", "True"]
        alone = train(toy.separate, tmp_path / "one", *flags, "--update-freq", "2").losses()
        together = train_together(
            toy.separate, tmp_path / "two", "--arch", "performer_tiny", "--favor-redraw", "2"
        )
        assert together.losses() == pytest.approx(alone, abs=2e-3)
        one, two = (read(tmp_path / name / "checkpoint_last.pt")[0] for name in ("one", "two"))
        assert projections(one) and all(
            torch.equal(value, two[key]) for key, value in projections(one).items()
        )

    def test_checkpoints_of_different_draws_are_not_averaged(self, toy, tmp_path):
        flags = [*PERFORMER, "--max-epoch", "3", "--favor-redraw", "5"]
        train(toy.separate, tmp_path, *flags, "--favor-redraw-until", "6")  # four updates an epoch
        arguments = ["--inputs", tmp_path, "--output", tmp_path / "mean.pt"]
        refused = posenc("average", *arguments, "--num-epoch-checkpoints", "3")
        assert "random features were redrawn" in refused.message()
        assert "--favor-redraw 0" in refused.message()
        mean = average(tmp_path, "--num-epoch-checkpoints", "2")
        assert len(generate(toy.separate, mean).hypotheses()) == 24

    def test_half_precision(self, toy, tmp_path):
        skip_without_cpu_kernels(torch.float16)
        train(toy.separate, tmp_path, *PERFORMER, "--memory-efficient-fp16")
        parameters, _ = read(tmp_path / "checkpoint_last.pt")
        exact = projections(build("performer_tiny", *TINY, "--encoder-embed-dim", "16",
                                  "--encoder-attention-heads", "2").state_dict())  # fmt: skip
        key = "encoder.layers.0.self_attn.feature_map.projection"
        assert torch.equal(parameters[key], exact[key])  # no bit was rounded away
        found = generate(toy.separate, tmp_path / "checkpoint_last.pt", "--fp16").hypotheses()
        assert len(found) == 24

    def test_what_is_refused_is_one_line(self, toy, tmp_path):
        flags = ["--arch", "alibi_base", *SMALL, "--attention", "elu", "--save-dir", tmp_path]
        finished = run("train", toy.separate, *USER_DIR, *flags, "--cpu", "--optimizer", "adam")
        assert "--attention elu: --position-encoding alibi" in finished.message()


class TestFineTuning:
    def test_attention_and_random_features_come_from_the_checkpoint(self, corpora, tmp_path):
        pre = tmp_path / "pre"
        arch = "performer_masked_lm_tiny"
        masked_lm.pretrain(corpora.text, pre, arch, "--favor-redraw", "2")
        source = ["--restore-file", pre / "checkpoint_last.pt", *masked_lm.FRESH]
        flags = ["--arch", masked_lm.MODEL, *masked_lm.CLASSIFY, "--num-classes", "2", *source]
        masked_lm.train(corpora.pairs, tmp_path / "fine", *flags)
        (before, _), (after, settings) = (
            read(tmp_path / name / "checkpoint_last.pt") for name in ("pre", "fine")
        )
        assert (settings["attention"], settings["favor_redraw"]) == ("favor", 0)
        assert projections(before)
        key = "encoder.sentence_encoder.layers.0.self_attn.feature_map.projection"
        fresh = orthogonal_rows(*before[key].shape, "1 encoder 0 0").float()
        assert not torch.equal(before[key], fresh)  # redrawn
        assert all(torch.equal(after[key], value) for key, value in projections(before).items())
        other = ["--save-dir", tmp_path / "other", *TRAINING, *flags, "--attention", "softmax"]
        finished = run("train", corpora.pairs, *USER_DIR, *other)
        assert "--attention softmax: --restore-file" in finished.message()
