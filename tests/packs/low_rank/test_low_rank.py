"""Training parts of a model: low-rank matrices with a frozen base, or only the attention."""

import shutil

import pytest
import torch
from fairseq.modules import MultiheadAttention
from fairseq.utils import move_to_cpu
from support.causal_language_models import tiny as language_model
from support.commands import SMALL, check_same, generate, read, refusal, train
from support.conversion import refuses
from support.helpers import EVERY_ENCODING, padded_batch, tiny
from support.masked_language_models import tiny as masked_language_model

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.cli import main
from fairseq_posenc.packs.low_rank.models import DIGEST, LowRankLinear

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.formulas
LORA = ["--lora-rank", "2", "--lora-alpha", "4"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model with random weights, and its checkpoint."""
    torch.manual_seed(1)
    model = tiny("rotary")
    path = tmp_path_factory.mktemp("base") / "base.pt"
    torch.save({"model": model.state_dict(), "cfg": {"model": {"_name": "x"}}}, path)
    return model, path


def adapted(path, encoding="rotary", *flags):
    return tiny.__wrapped__(encoding, *LORA, "--lora-base", str(path), *flags)


def learn(model):
    source, target = padded_batch()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(2):  # B starts as zero, and so does the gradient of A
        optimizer.zero_grad()
        model(source, None, target)[0].log_softmax(-1)[..., 5].mean().neg().backward()
        optimizer.step()


def test_an_adapted_model_begins_as_its_base_and_trains_the_matrices_alone(base):
    stock, path = base
    model = adapted(path)
    source, target = padded_batch()
    want = stock(source, None, target)[0]
    torch.testing.assert_close(model(source, None, target)[0], want)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    matrices = {f".{side}.lora_{m}" for side in ("q_proj", "v_proj") for m in "AB"}
    assert len(trained) == 2 * 3 * 4 and all(n[n.index("attn") + 4 :] in matrices for n in trained)
    learn(model)
    assert not torch.allclose(model(source, None, target)[0], want)
    assert set(model.state_dict()) == trained | {DIGEST}
    for name, value in stock.state_dict().items():
        torch.testing.assert_close(torch.nn.Module.state_dict(model)[name], value)


def test_projections_of_one_attention_are_named_by_the_attention(base):
    model = adapted(base[1], "rotary", "--lora-layers", "self_attn.q_proj,encoder_attn.v_proj")
    found = [name.split(".") for name, m in model.named_modules() if isinstance(m, LowRankLinear)]
    assert {(side, *rest) for side, _, _, *rest in found} == {
        ("encoder", "self_attn", "q_proj"),
        ("decoder", "self_attn", "q_proj"),
        ("decoder", "encoder_attn", "v_proj"),
    }


def test_the_formula_by_hand():
    torch.manual_seed(2)
    frozen = torch.nn.Linear(6, 5)
    layer = LowRankLinear(frozen, rank=2, alpha=8.0).double()
    torch.nn.init.normal_(layer.lora_B)
    x = torch.randn(3, 6).double()
    weight = layer.weight + 4 * layer.lora_B @ layer.lora_A
    torch.testing.assert_close(layer(x), x @ weight.t() + layer.bias)
    torch.testing.assert_close(layer.merged(), weight)


def test_a_saved_state_is_completed_by_the_same_base_only(base, tmp_path):
    _, path = base
    model = adapted(path)
    learn(model)
    source, target = padded_batch()
    want = model(source, None, target)[0]
    again = adapted(path)
    again.load_state_dict(model.state_dict(), strict=True)
    torch.testing.assert_close(again(source, None, target)[0], want)
    other = torch.load(path)
    other["model"] = {name: value + 1e-3 for name, value in other["model"].items()}
    torch.save(other, tmp_path / "other.pt")
    with pytest.raises(UsageError, match="other.pt: the checkpoint was trained with another base"):
        adapted(tmp_path / "other.pt").load_state_dict(model.state_dict(), strict=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_state_in_half_precision_is_one_of_the_same_base(base, dtype):
    _, path = base
    state = move_to_cpu(adapted(path).to(dtype).state_dict())  # as fairseq saves: in float32
    adapted(path).load_state_dict(state, strict=True)
    adapted(path).to(dtype).load_state_dict(state, strict=True)


def test_what_the_base_lacks_is_trained_and_saved(base):
    """The parameters of a new encoding are not in the base."""
    model = adapted(base[1], "t5")
    tables = {name for name in model.state_dict() if "position_bias" in name}
    assert tables and all(dict(model.named_parameters())[name].requires_grad for name in tables)


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--lora-layers", "q_proj,query"], "no projection is named 'query'; choose from fc1, fc2"),
        (["--encoder-embed-dim", "16"], "its parameters do not fit this model"),
    ],
)
def test_mistakes_are_one_line(base, flags, words):
    with pytest.raises(UsageError, match=words):
        adapted(base[1], "rotary", *flags)


def test_a_projection_with_two_names_has_one_adapter(tmp_path):
    """In the Reformer, queries and keys share one projection."""
    path, name = tmp_path / "base.pt", "reformer:rotary"
    torch.save({"model": tiny(name).state_dict(), "cfg": {"model": {"_name": "x"}}}, path)
    model = adapted(path, name, "--lora-layers", "q_proj,k_proj")
    layer = model.encoder.layers[0].self_attn
    assert layer.q_proj is layer.k_proj and isinstance(layer.q_proj, LowRankLinear)


def test_matrices_train_resume_merge_and_translate(toy, trained, tmp_path):
    base, whole, rest = trained / "checkpoint_last.pt", tmp_path / "whole", tmp_path / "rest"
    lora = ["--lora-rank", "2", "--lora-base", base, "--lora-layers", "q_proj,fc1"]
    flags = ["--arch", "roformer_tiny", *SMALL, *lora, "--update-epoch-batch-itr", "True"]
    flags += ["--max-epoch", "2"]
    losses = train(toy.separate, whole, *flags, "--save-interval-updates", "6").losses()
    state = read_checkpoint(str(whole / "checkpoint_last.pt"))["model"]
    kept = {name for name in state if ".lora_" not in name}
    assert kept == {"low_rank_base"} and len(state) > 1
    rest.mkdir()
    shutil.copy(whole / "checkpoint_2_6.pt", rest / "checkpoint_last.pt")
    assert train(toy.separate, rest, *flags).losses().items() <= losses.items()
    checkpoint, merged = whole / "checkpoint2.pt", tmp_path / "merged.pt"
    apart = generate(toy.separate, checkpoint).hypotheses()
    moved = tmp_path / "moved.pt"
    shutil.copy(base, moved)
    main(["merge-lora", str(checkpoint), str(merged), "--lora-base", str(moved)])
    refuses(["has no low-rank matrices"], "merge-lora", merged, tmp_path / "out.pt")
    check_same(generate(toy.separate, merged).hypotheses(), apart)
    assert set(read_checkpoint(str(merged))["model"]) == set(read_checkpoint(str(base))["model"])
    words = [f"{checkpoint}: holds low-rank matrices alone"]
    out = ("--output", tmp_path / "out")
    refuses(words, "average", "--inputs", checkpoint, whole / "checkpoint1.pt", *out)
    refuses(words, "export", "ctranslate2", checkpoint, tmp_path / "out")


# --- --train-only: all other parameters stay the same, bit for bit

#: Encodings without parameters.
FIXED = {"none", "nezha", "sinusoidal", "rotary", "xpos", "alibi", "sandwich", "sinusoidal+rotary"}


def names(found):
    return {name for name, parameter in found.named_parameters() if parameter.requires_grad}


def in_attention(found):
    """Names of the parameters in attention modules and in their layer norms."""
    inside = set()
    for path, module in found.named_modules():
        if isinstance(module, MultiheadAttention) or path.endswith("attn_layer_norm"):
            inside |= {f"{path}.{name}" for name, _ in module.named_parameters()}
    return inside


@pytest.mark.parametrize("encoding", EVERY_ENCODING)
def test_parts_are_what_the_encoding_adds_and_what_attends(encoding):
    added = names(tiny(encoding)) - names(tiny("none"))
    assert bool(added) == (encoding not in FIXED)
    if added:
        assert names(tiny(encoding, "--train-only", "encoding")) == added
    else:
        with pytest.raises(UsageError, match="--train-only encoding: .* has no parameters"):
            tiny(encoding, "--train-only", "encoding")
    attending = tiny(encoding, "--train-only", "attention")
    assert names(attending) == added | in_attention(attending)


def test_other_families_have_the_same_parts():
    for found in (
        language_model("rotary", "--train-only", "attention"),
        masked_language_model("rotary", "--train-only", "attention"),
    ):
        assert names(found) == in_attention(found) != set()


@pytest.mark.parametrize("encoding", ["rotary", "none,t5"])
@pytest.mark.parametrize("flag", ["--checkpoint-activations", "--offload-activations"])
def test_recomputed_layers_above_frozen_embeddings_are_trained(encoding, flag):
    """fairseq's own checkpointing gives a layer no gradients if its inputs need none."""
    part = ("--train-only", "attention")
    plain, again = (language_model(encoding, *part, *more).train() for more in ([], [flag]))
    again.load_state_dict(plain.state_dict())
    for each in (plain, again):
        each(torch.tensor([[5, 6, 7, 8]]))[0].log_softmax(-1)[..., 5].mean().backward()
    found = dict(again.named_parameters())
    for name, parameter in plain.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(found[name].grad, parameter.grad)


FLAGS = ["--arch", "posenc_transformer", *SMALL, "--update-epoch-batch-itr", "True"]
FLAGS += ["--max-epoch", "2", "--train-only", "attention", "--position-encoding", "t5"]


@pytest.fixture(scope="module")
def swapped(toy, trained, tmp_path_factory):
    """The folder of a rotary model that continues with T5's biases, and its first checkpoint."""
    folder, base = tmp_path_factory.mktemp("swapped"), trained / "checkpoint_last.pt"
    start = ["--finetune-from-model", base, "--validate-at-start", "--save-interval-updates", "6"]
    log = train(toy.separate, folder, *FLAGS, *start)
    assert log.entries("valid")[0]["valid_num_updates"] == "0"
    return folder, base


def test_the_rest_is_kept_bit_for_bit_and_has_no_state_of_the_optimizer(swapped):
    folder, base = swapped
    before, (after, _) = read(base)[0], read(folder / "checkpoint_last.pt")
    changed = {name for name, x in after.items() if not torch.equal(x, before.get(name, x[:0]))}
    trained = {name for name in after if "attn" in name or "position_bias" in name}
    # key biases do not matter: they shift all logits of a query equally
    assert {name for name in trained if not name.endswith("k_proj.bias")} <= changed <= trained
    state = read_checkpoint(str(folder / "checkpoint_last.pt"))["last_optimizer_state"]
    sizes = sum(after[name].numel() for name in trained)
    assert sum(entry["exp_avg"].numel() for entry in state["state"].values()) == sizes


def test_a_training_goes_on_as_without_a_first_validation_and_uninterrupted(toy, swapped, tmp_path):
    folder, base = swapped
    plain, rest = tmp_path / "plain", tmp_path / "rest"
    train(toy.separate, plain, *FLAGS, "--finetune-from-model", base)
    rest.mkdir()
    shutil.copy(folder / "checkpoint_2_6.pt", rest / "checkpoint_last.pt")
    message = refusal(toy.separate, rest, *FLAGS, "--train-only", "all")
    assert "--train-only all: the run in" in message
    log = train(toy.separate, rest, *FLAGS, "--validate-at-start")
    assert "0" not in [entry["valid_num_updates"] for entry in log.entries("valid")]
    want = read(folder / "checkpoint_last.pt")[0]
    for other in (plain, rest):
        found = read(other / "checkpoint_last.pt")[0]
        assert all(torch.equal(value, found[name]) for name, value in want.items())
