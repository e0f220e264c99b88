"""User-registered entries work like ours: flags, checks, models, all families, and Hydra."""

import inspect
from dataclasses import dataclass, make_dataclass
from typing import Optional

import pytest
import torch
from fairseq import options
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from hydra.core.config_store import ConfigStore
from support.helpers import build, decode_in_steps, parse, sentences
from support.own_extensions import own_model, registries_as_before
from support.parts import attended_alone, prepared_by
from torch import nn

from fairseq_posenc.attention import Batch, register_attention
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS, register_encoding
from fairseq_posenc.encodings.base import DistanceBias, InputTable, QKVTransform
from fairseq_posenc.encodings.content import ContentBias
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.layers.norms import NORMS, register_norm
from fairseq_posenc.models import FAMILIES

pytestmark = pytest.mark.properties

PAPER = "nobody 2026"


@dataclass
class PowerFlags(LinearFlags):
    own_power: Optional[int] = setting(1, "power of it", role="model", at_least=1)


@dataclass
class GainFlags:
    own_gain: Optional[float] = setting(1.0, "gain of it", role="model")


class Looking(ContentBias):
    """A term that reads all inputs that a content-dependent term may read."""

    def forward(self, content, vectors=None):
        new = content.x.mean(-1)[:, None, :, None]  # (B, T, C) -> (B, 1, T, 1)
        gates = content.products.sigmoid() + new
        padding = content.padding_mask
        return gates if padding is None else gates.masked_fill(padding[:, None, None], 0.0)


class Signs(QKVTransform):
    """x_m · (-1)^m, a linear map."""

    applies_to_features = True

    def table(self, positions, layer=0):
        return (1.0 - 2 * (positions % 2))[..., None, None]

    def forward(self, q, k, v, table):
        return q * table, k * table, v


class Valued(ContentBias):
    """Adds 0 to the logits and 3 to every value."""

    def forward(self, content, vectors=None):
        return torch.zeros_like(content.products)

    def relative_values(self, content, weights):
        return 3 * weights.sum(dim=-1, keepdim=True).expand_as(content.q)


class Sideways(DistanceBias):
    """Logits with dimensions in the wrong order: distances before heads."""

    def by_distance(self, distances):
        return distances.unsqueeze(1).expand(-1, self.num_heads).float()


class Headless(ContentBias):
    """Logits summed over heads, so that the dimension of heads is missing."""

    def forward(self, content, vectors=None):
        return content.products.sum(dim=1)


class Gained(nn.Module):
    """x · gain, without normalisation."""

    def __init__(self, channels, options):
        super().__init__()
        self.gain = options.own_gain

    def forward(self, x):
        return x * self.gain


@pytest.fixture()
def registered():
    """Add entries to the registries, and remove them after the test."""
    with registries_as_before():
        described = {"paper": PAPER, "summary": "of a test"}
        register_encoding("own_looking", **described)(Looking)
        register_encoding("own_valued", **described)(Valued)
        register_encoding("own_signs", **described)(Signs)
        register_encoding("own_sideways", **described)(Sideways)
        register_encoding("own_headless", **described)(Headless)
        register_attention("own_power", flags=PowerFlags, **described)(LinearAttention)
        register_norm("own_norm", flags=GainFlags, **described)(Gained)
        yield


OWN = ("own_power", "own_gain")


def test_every_family_takes_flags_of_its_users(registered):
    for family in FAMILIES.values():
        assert set(OWN) <= set(family.dataclass.__dataclass_fields__)
        if family.for_hydra:
            assert MODEL_DATACLASS_REGISTRY[family.model] is family.dataclass
            node = ConfigStore.instance().load(f"model/{family.model}.yaml").node
            assert set(OWN) <= set(node)
    arguments = ["data", "--task", "translation", "--arch", "roformer_base"]
    arguments += ["--norm", "own_norm", "--own-gain", "2"]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    assert args.own_gain == 2 and args.own_power == 1


@pytest.mark.parametrize("flag", ["--attention", "--norm", "--feed-forward", "--position-encoding"])
def test_an_unknown_name_may_be_one_of_a_user_dir(flag):
    """As if a checkpoint with a user-defined part were loaded without its --user-dir."""
    with pytest.raises(UsageError, match=f"{flag} mine: .*; if it is your own, .*--user-dir"):
        build("posenc_transformer", flag, "mine")


@torch.no_grad()
def test_content_terms_see_the_input_padding_and_products(registered):
    model = own_model("--position-encoding", "own_looking")
    source, target = sentences(2, 7), sentences(2, 6, seed=1)
    full, _ = model(source, None, target)
    gap = torch.full((2, 3), 1)
    padded, _ = model(torch.cat((source, gap), dim=1), None, target)
    torch.testing.assert_close(padded, full, atol=1e-5, rtol=0)


@torch.no_grad()
def test_values_of_content_terms_are_added_or_refused(registered):
    """To shift the values of every layer by 3, defining ``relative_values`` is enough."""
    plain = own_model("--position-encoding", "none").encoder.layers[0].self_attn
    valued = own_model("--position-encoding", "own_valued").encoder.layers[0].self_attn
    valued.load_state_dict(plain.state_dict())
    x = torch.randn(2, 7, plain.embed_dim)
    plain.v_proj.bias += 3
    torch.testing.assert_close(attended_alone(valued, x), attended_alone(plain, x))
    words = "own_valued: --layer gated does not support position-dependent values"
    with pytest.raises(UsageError, match=f"--position-encoding {words}"):
        own_model("--position-encoding", "own_valued", "--layer", "gated")


@torch.no_grad()
def test_linear_attention_transforms_features_with_a_transform_of_ones_own(registered):
    flags = ["--position-encoding", "own_signs", "--attention", "elu"]
    model, source, target = own_model(*flags), sentences(2, 7), sentences(2, 6, seed=1)
    full, _ = model(source, None, target)
    steps = decode_in_steps(model, source, target, [1, 3, 1, 1])
    torch.testing.assert_close(steps, full, atol=1e-5, rtol=0)
    order = torch.tensor([1, 0, 2, 3, 4, 5, 6])
    states, moved = (model.encoder(x)["encoder_out"][0] for x in (source, source[:, order]))
    assert not torch.allclose(states[order], moved, atol=1e-4)


@pytest.mark.parametrize(
    "name, words",
    [
        ("sideways", r"Sideways.by_distance: .*\(13, 4\); .* \(H, N\), here \(4, 13\)"),
        ("headless", r"Headless.forward: .*\(2, 7, 7\); .* \(B, H, T, S\), here \(2, 4, 7, 7\)"),
    ],
)
def test_logits_of_another_shape_are_refused_in_the_first_forward(registered, name, words):
    model = own_model("--position-encoding", f"rotary+own_{name}")
    with pytest.raises(UsageError, match=words):
        model(sentences(2, 7), None, sentences(2, 6, seed=1))


def test_a_table_that_fairseq_does_not_have_is_refused():
    for table in (None, "fourier"):
        hook = type("Table", (InputTable,), {"table": table})
        said = f"--position-encoding own_table: its table is {table}"
        with pytest.raises(UsageError, match=said):
            register_encoding("own_table", paper=PAPER, summary="a table")(hook)
    assert "own_table" not in ENCODINGS


@torch.no_grad()
@pytest.mark.parametrize(
    "flags, function",
    [
        (["glu", "--activation-fn", "tanh"], torch.tanh),
        (["swiglu"], lambda x: x * x.sigmoid()),
        (["geglu"], lambda x: x * torch.special.ndtr(x)),
    ],
)
def test_gated_feed_forwards_are_their_formulas(flags, function):
    model = build("roformer_tiny", "--feed-forward", *flags).eval()
    layer, x = model.encoder.layers[0], torch.randn(5, 2, 128)
    norm = layer.final_layer_norm
    layer.self_attn.out_proj.weight.zero_(), layer.self_attn.out_proj.bias.zero_()
    y = layer.self_attn_layer_norm(x)
    hidden = function(layer.fc1(y)) * layer.fc_gate(y)
    torch.testing.assert_close(
        layer(x, **prepared_by(layer.self_attn, Batch(x, 2))), norm(y + layer.fc2(hidden))
    )


def test_our_tasks_learn_that_a_model_comes_from_a_checkpoint():
    """fairseq passes from_checkpoint only to tasks whose ``build_model`` has this argument."""
    ours = [t for t in TASK_REGISTRY.values() if t.__module__.startswith("fairseq_posenc")]
    for task in ours:
        assert "from_checkpoint" in inspect.getfullargspec(task.build_model).args, task


def test_a_name_is_registered_once():
    with pytest.raises(UsageError, match="--norm rms: registered twice"):
        register_norm("rms", paper=PAPER, summary="again")(Gained)
    with pytest.raises(UsageError, match="letters, digits"):
        register_encoding("a+b", paper=PAPER, summary="no name")(Signs)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dropout", "--dropout: declared twice"),  # a flag of fairseq
        ("rotary_base", "--rotary-base: declared twice"),  # a flag in another registry
        ("own_gain", "--norm again: declares --own-gain, a flag of another entry"),
    ],
)
def test_the_name_of_a_flag_is_declared_once(registered, name, words):
    flags = make_dataclass("Flags", [(name, Optional[int], setting(1, "again", role="model"))])
    with pytest.raises(UsageError, match=words):
        register_norm("again", paper=PAPER, summary="again", flags=flags)(Gained)
    assert "again" not in NORMS
    build("roformer_tiny", "--norm", "own_norm")


def test_flags_without_a_declared_role_are_refused():
    bare = make_dataclass("Bare", [("own_bare", Optional[int], None)])
    with registries_as_before():
        NORMS["own_bare"] = NORMS["rms"]._replace(flags=bare)
        with pytest.raises(UsageError, match="own_bare: a flag must be declared with"):
            NORMS.flags()
        del NORMS["own_bare"]


def test_former_names_and_values_still_work(caplog):
    flags = ["--shaw-distance", "7", "--norm", "unit", "--init-weights", "usual"]
    cfg = parse("posenc_transformer", "--position-encoding", "separate+shaw", *flags).model
    assert (cfg.shaw_max_distance, cfg.norm, cfg.init_weights) == (7, "rms", "default")
    assert cfg.position_encoding == "bert_ad+shaw"
