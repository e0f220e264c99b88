"""Export and import of low-rank matrices as PEFT adapters: names, outputs, and refusals.

Outputs are compared with those of weights W + (α / r) B A and, if PEFT is installed, with PEFT's.
"""

import json
import re
import shutil

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from support.conversion import convert, refuses
from support.expressed import EXPRESSED, checkpoint_of, trained

from fairseq_posenc.checkpoints import loader
from fairseq_posenc.checkpoints.reading import read_checkpoint, write_checkpoint
from fairseq_posenc.packs.low_rank.models import DIGEST, digest_of

pytest_plugins = ["support.conversion"]
pytestmark = pytest.mark.formulas


QV = "q_proj,v_proj"
_LLAMA = "q_proj,k_proj,v_proj,out_proj,fc1,fc2,fc_gate"


#: Maps rows of support.expressed to the projections to adapt.
ADAPTED = {
    **{"llama": QV, "grouped": _LLAMA, "share": QV, "neox": "k_proj,q_proj,v_proj,out_proj,fc1"},
    **{"bloom": "k_proj,fc2", "gpt2": "v_proj,out_proj,fc1,fc2", "roberta": "q_proj,fc2"},
    **{"modernbert": "q_proj,k_proj,fc_gate", "bart": QV, "geglu": QV},
}


def adapt(base, layers, rank=2, alpha=3.0, **settings):
    """Write adapted.pt beside a checkpoint, with random low-rank matrices, as a training does.

    Args:
        base: the checkpoint.
        layers: value of ``--lora-layers``.
        settings: other settings that differ from the base.
    """
    state = read_checkpoint(str(base))
    whole, ends = state["model"], tuple(f".{name}.weight" for name in layers.split(","))
    matrices = {DIGEST: digest_of(whole)}
    for name, weight in whole.items():
        if name.endswith(ends):
            prefix = name[: -len("weight")]
            matrices[f"{prefix}lora_A"] = torch.randn(rank, weight.size(1)) / 4
            matrices[f"{prefix}lora_B"] = torch.randn(weight.size(0), rank) / 4
    given = {"lora_rank": rank, "lora_alpha": alpha, "lora_layers": layers, "lora_base": str(base)}
    state["cfg"]["model"].update(given, **settings)
    state["model"] = matrices
    write_checkpoint(state, str(base.parent / "adapted.pt"))
    return base.parent / "adapted.pt"


@torch.no_grad()
def our_logits(path):
    """Logits (2, 9, V) of a checkpoint for fixed tokens; translation also reads them as targets."""
    model, tokens = loader.load(str(path)).model, _tokens()
    if isinstance(model, FairseqEncoderDecoderModel):
        return model(tokens, torch.tensor([9, 9]), tokens.flip(0))[0]
    return model(tokens)[0]


@torch.no_grad()
def their_logits(model):
    """The logits for the same tokens of an exported model, run by transformers or PEFT."""
    tokens = _tokens()
    more = {"decoder_input_ids": tokens.flip(0)} if model.config.is_encoder_decoder else {}
    return model.eval()(input_ids=tokens, **more).logits


def _tokens():
    tokens = torch.randint(4, 6, (2, 9), generator=torch.Generator().manual_seed(4))
    tokens[:, 0] = 2
    return tokens


def their_model(transformers, folder):
    """Load the whole model in a folder with the class that its config.json names."""
    config = json.loads((folder / "config.json").read_text())
    return getattr(transformers, config["architectures"][0]).from_pretrained(folder).float()


@torch.no_grad()
def apply_by_hand(model, folder):
    """Add an adapter's (α / r) B A to the weights of a model of transformers."""
    from safetensors.torch import load_file

    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    names = {re.fullmatch(r"base_model\.model\.(.*)\.lora_[AB]\.weight", n)[1] for n in tensors}
    for name in names:
        rank, alpha = config["r"], config["lora_alpha"]
        for end, value in config["rank_pattern"].items():
            rank = value if f".{name}".endswith(f".{end}") else rank
        for end, value in config["alpha_pattern"].items():
            alpha = value if f".{name}".endswith(f".{end}") else alpha
        a, b = (tensors[f"base_model.model.{name}.lora_{part}.weight"].double() for part in "AB")
        assert len(a) == rank == b.size(1)
        product = alpha / rank * b @ a
        weight = model.get_submodule(name).weight
        weight += (product.t() if config["fan_in_fan_out"] else product).float()
    ends = tuple(f".{end}" for end in config["target_modules"])
    assert {n for n, _ in model.named_modules() if f".{n}".endswith(ends)} == names  # as PEFT does
    return model


@pytest.fixture(scope="module")
def exported(transformers, tmp_path_factory):
    """A function that maps a name in ADAPTED to a folder with ours/, base/ and adapter/."""
    made = {}

    def get(name):
        if name == "modernbert" and not hasattr(transformers, "ModernBertForMaskedLM"):
            pytest.skip("this transformers has no ModernBERT")
        if name not in made:
            folder = made[name] = tmp_path_factory.mktemp("peft")
            path, target = checkpoint_of(folder / "ours", name), EXPRESSED[name].target
            adapted = adapt(path, ADAPTED[name])
            convert("export", target, path, folder / "base")
            given = ["--peft-base", folder / "base", "--verify"]
            convert("export", target, adapted, folder / "adapter", *given)
        return made[name]

    return get


def close(have, want):
    torch.testing.assert_close(have[..., : want.size(-1)], want, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ADAPTED)
def test_the_matrices_added_by_hand_give_our_logits(name, exported, transformers, tmp_path):
    """An import of the adapter merges it with its base."""
    folder, target = exported(name), EXPRESSED[name].target
    files = {path.name for path in (folder / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}
    model = their_model(transformers, folder / "base")
    before = their_logits(model)
    want = our_logits(folder / "ours" / "adapted.pt")
    assert (before[..., : want.size(-1)] - want).abs().max() > 0.01
    close(their_logits(apply_by_hand(model, folder / "adapter")), want)
    convert("import", target, folder / "adapter", tmp_path / "back", "--verify")
    close(our_logits(tmp_path / "back" / "checkpoint.pt"), want)


@pytest.mark.parametrize("name", ADAPTED)
def test_peft_reads_what_we_write_and_we_what_it_writes(name, exported, transformers, tmp_path):
    peft = pytest.importorskip("peft", reason="adapters are read with PEFT")
    folder, target = exported(name), EXPRESSED[name].target
    base = their_model(transformers, folder / "base")
    theirs = peft.PeftModel.from_pretrained(base, folder / "adapter")
    close(their_logits(theirs), our_logits(folder / "ours" / "adapted.pt"))
    config = theirs.peft_config["default"]
    fresh = peft.LoraConfig(r=3, lora_alpha=5, target_modules=config.target_modules)
    model = peft.get_peft_model(their_model(transformers, folder / "base"), fresh)
    for key, parameter in model.named_parameters():
        if "lora_" in key:
            torch.nn.init.normal_(parameter, std=0.2)
    model.peft_config["default"].base_model_name_or_path = "somewhere/else"
    model.save_pretrained(tmp_path / "adapter")
    words = ["its base 'somewhere/else' is no folder here", "--peft-base"]
    refuses(words, "import", target, tmp_path / "adapter", tmp_path / "ours")
    given = ["--peft-base", folder / "base"]
    convert("import", target, tmp_path / "adapter", tmp_path / "ours", *given)
    have = our_logits(tmp_path / "ours" / "checkpoint.pt")
    close(their_logits(model), have)


def test_a_base_of_another_place(exported, tmp_path, capsys):
    folder = exported("llama")
    shutil.copy(folder / "ours" / "checkpoint.pt", tmp_path / "moved.pt")
    shutil.copy(folder / "ours" / "dict.txt", tmp_path / "dict.txt")
    state = read_checkpoint(str(folder / "ours" / "adapted.pt"))
    state["cfg"]["model"]["lora_base"] = "gone.pt"
    write_checkpoint(state, str(tmp_path / "adapted.pt"))
    given = ["export", "hf-llama", tmp_path / "adapted.pt", tmp_path / "out", "--verify"]
    given += ["--peft-base", folder / "base"]
    refuses(["--lora-base gone.pt: no such file"], *given)
    convert(*given, "--lora-base", tmp_path / "moved.pt")
    assert "largest difference from LlamaForCausalLM" in capsys.readouterr().out


def test_what_an_adapter_cannot_hold_is_refused(exported, tmp_path):
    folder, other = exported("llama"), exported("grouped") / "base"
    whole, adapted, base = (
        folder / name for name in ("ours/checkpoint.pt", "ours/adapted.pt", "base")
    )
    changed = shutil.copytree(base, tmp_path / "changed")
    shutil.copy(other / "model.safetensors", changed)
    moved = shutil.copytree(folder / "ours", tmp_path / "ours") / "checkpoint.pt"

    def refused(words, path, *flags, format="hf-llama", peft_base=base):
        given = [] if peft_base is None else ["--peft-base", peft_base]
        refuses(words, "export", format, path, tmp_path / "out", *given, *flags)

    refused([f"{adapted}: holds low-rank", str(whole), "--peft-base"], adapted, peft_base=None)
    refused(["no such folder"], adapted, peft_base=tmp_path / "no")
    words = ["num_key_value_heads is 2, but 4 in the base", "exported in the same format"]
    refused(words, adapted, peft_base=other)
    refused(["lm_head.weight differs from the base"], adapted, peft_base=changed)
    refused(["--about x: has no effect on an adapter"], adapted, "--about", "x")
    refused([f"--peft-base {base}", "is a whole model; drop it"], whole)
    refused(["format cannot hold", "merge-lora"], adapted, format="hf-roformer", peft_base=None)
    words = ["--lora-layers selects decoder.output_projection", "merge"]
    refused(words, adapt(moved, "q_proj,output_projection"))
    words = ["--rotary-base 77", "its base with 10000", "merge"]
    refused(words, adapt(moved, "q_proj", rotary_base="77"))


def test_a_head_that_was_trained_beside_the_matrices_is_refused(exported, tmp_path):
    folder = exported("roberta")
    heads = read_checkpoint(str(trained(tmp_path / "head", "topic", position_encoding="learned")))
    state = read_checkpoint(str(folder / "ours" / "adapted.pt"))
    found = {n: x for n, x in heads["model"].items() if n.startswith("classification_heads")}
    state["model"].update(found)
    write_checkpoint(state, str(tmp_path / "adapted.pt"))
    words = ["a trained parameter classification_heads.topic.", "beside its matrices", "merge-lora"]
    given = [tmp_path / "adapted.pt", tmp_path / "out", "--peft-base", folder / "base"]
    refuses(words, "export", "hf-roberta", *given)


def test_a_base_of_fairseqs_own_is_merged_first(exported, tmp_path):
    """fairseq's models do not record their position encoding, so it cannot be compared."""
    folder = exported("bart")
    state = read_checkpoint(str(folder / "ours" / "checkpoint.pt"))
    state["cfg"]["model"].update(_name="transformer", arch="transformer", position_encoding=None)
    write_checkpoint(state, str(tmp_path / "stock.pt"))
    given = [folder / "ours" / "adapted.pt", tmp_path / "out", "--peft-base", folder / "base"]
    words = ["its base is a transformer", "merge-lora"]
    refuses(words, "export", "hf-bart", *given, "--lora-base", tmp_path / "stock.pt")


def changed(names, change):
    """A function that applies *change* to the tensors whose names contain *names*."""
    return lambda tensors: {n: change(x) if names in n else x for n, x in tensors.items()}


#: Entries of adapter_config.json, or a function that changes the tensors; words of the refusal.
WRONG = {
    "another library": ({"peft_type": "IA3"}, ["peft_type IA3", "LORA"]),
    "rslora": ({"use_rslora": True}, ["use_rslora True is not supported"]),
    "bias": ({"bias": "lora_only"}, ["bias lora_only is not supported; known: none"]),
    "base": ({"init_lora_weights": "pissa"}, ["init_lora_weights pissa", "gaussian"]),
    "later": ({"use_something": 3}, ["use_something 3 is not supported"]),
    "rank": ({"r": 4}, ["model.layers.0.self_attn.", "of rank 4"]),
    "no rank": ({"r": 0}, ["r is 0"]),
    "pattern": ({"rank_pattern": {"q_proj": 1}}, ["q_proj", "of rank 1"]),
    "no pattern": ({"rank_pattern": {"(": 1}}, ["rank_pattern", "cannot be read"]),
    "numbers": ({"alpha_pattern": {"q_proj": "x"}}, ["alpha_pattern is 'x'"]),
    "alpha": ({"lora_alpha": -1}, ["lora_alpha is -1", "above 0"]),
    "nowhere": ({"base_model_name_or_path": None}, ["its base '' is no folder", "--peft-base"]),
    "extra": (lambda t: {**t, "base_model.model.lm_head.weight": t[min(t)]}, ["unexpected tensor"]),
    "half": (lambda t: {n: t[n] for n in t if "lora_A" in n}, ["are not lora_A and lora_B"]),
    "none": (lambda t: {}, ["holds no low-rank matrices"]),
    "nan": (changed("", lambda x: x * float("nan")), ["NaN"]),
    "module": (
        lambda t: {n.replace("self_attn", "attention"): x for n, x in t.items()},
        ["adapts model.layers.0.attention.q_proj, which"],
    ),
    "sizes": (changed("_B", lambda x: torch.cat((x, x))), ["sizes differ", "32 x 16 and 16 x 16"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_adapters_that_are_something_else_are_refused(name, exported, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(exported("llama") / "adapter", tmp_path / "adapter")
    change, words = WRONG[name]
    if callable(change):
        file = tmp_path / "adapter" / "adapter_model.safetensors"
        save_file({n: x.clone() for n, x in change(load_file(file)).items()}, file)
    else:
        file = tmp_path / "adapter" / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    refuses(words, "import", "hf-llama", tmp_path / "adapter", tmp_path / "ours")


def test_a_base_without_an_adapter_and_a_base_of_another_format(exported, tmp_path):
    folder, out = exported("llama"), tmp_path / "out"
    words = [f"--peft-base {folder}", "is for adapters, but"]
    refuses(words, "import", "hf-llama", folder / "base", out, "--peft-base", folder)
    words = [f"{folder / 'base'}/config.json: model_type is 'llama'", "gpt_neox"]
    refuses(words, "import", "hf-gpt-neox", folder / "adapter", out)
    (tmp_path / "empty").mkdir()
    shutil.copy(folder / "adapter" / "adapter_config.json", tmp_path / "empty")
    refuses(["has no weights", "adapter_model"], "import", "hf-llama", tmp_path / "empty", out)
