"""With 0, -1, nan, inf, 1e30 or no text, every flag is refused by name, or the model works."""

import dataclasses
import functools
from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.optim import build_optimizer
from omegaconf import OmegaConf
from support.commands import shape
from support.helpers import sentences, task_of

from fairseq_posenc.basics.errors import OneLineParser, UsageError, flag_of
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.configuration.stock import STOCK_RANGES
from fairseq_posenc.flags.settings import ROLES, check_option
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.models.masked_lm import MaskedLMFlags
from fairseq_posenc.training.amos import AmosConfig

pytestmark = pytest.mark.refusals

VALUES = ["0", "-1", "nan", "inf", "1e30", str(10**30), ""]
#: maps the start of a flag's name to other flags with which that flag has an effect
WHERE = {
    "rotary": ["--position-encoding", "rotary"],
    "rotary_scaling_factor": ["--position-encoding", "rotary", "--rotary-scaling", "ntk"],
    "shaw": ["--position-encoding", "shaw"],
    "deberta": ["--position-encoding", "deberta"],
    "t5": ["--position-encoding", "t5"],
    "fire": ["--position-encoding", "fire"],
    "sandwich": ["--position-encoding", "sandwich"],
    "nezha": ["--position-encoding", "nezha"],
    "random": ["--position-encoding", "t5"],
    "log": ["--position-encoding", "t5"],
    "cls_reset": ["--position-encoding", "tupe", "--untie-cls"],
    "linear": ["--position-encoding", "rotary", "--attention", "elu"],
    "cosformer": ["--attention", "cosformer", "--position-encoding", "none"],
    "favor": ["--attention", "favor"],
    "local": ["--attention", "local"],
    "bigbird": ["--attention", "bigbird"],
    "reformer": ["--attention", "reformer"],
    "favor_redraw_until": ["--attention", "favor", "--favor-redraw", "5"],
    "gau": ["--layer", "gated", "--gau-normaliser", "squared_relu"],
    "gau_reference_length": ["--layer", "gated"],
}
#: each family's settings of lengths, which test_lengths_are_refused_by_name tests
LENGTHS = {
    "posenc_transformer": ["max_source_positions", "max_target_positions"],
    "posenc_masked_lm": ["tokens_per_sample", "max_positions", "num_positions"],
    "posenc_lm": ["tokens_per_sample", "max_target_positions"],
}
SIZES = {
    "posenc_transformer": shape(1, 8, 8, 2),
    "posenc_masked_lm": shape(1, 8, 8, 2, "encoder"),
    "posenc_lm": shape(1, 8, 8, 2, "decoder"),
}


@functools.lru_cache(maxsize=None)
def parser_of(family):
    parser = OneLineParser(allow_abbrev=False)
    FAMILIES[family].add_args(parser)
    return parser


def flags_of(family):
    """Flags that take a value: the plug-in's, and those of fairseq for which we check a range."""
    own = {*plug_in_flags(), *(field.name for field in dataclasses.fields(MaskedLMFlags))}
    return [
        field.name
        for field in dataclasses.fields(FAMILIES[family].dataclass)
        if field.metadata.get("role") in ROLES
        and "bool" not in str(field.type)
        and not any(field.name in names for names in LENGTHS.values())
        and (field.name in own or field.name in STOCK_RANGES)
    ]


def cases():
    """Every flag once, with the first family that has it."""
    where = {}
    for family in SIZES:
        for name in flags_of(family):
            where.setdefault(name, family)
    declared = {f.name for family in SIZES for f in dataclasses.fields(FAMILIES[family].dataclass)}
    flags = {name: flag for name, flag in plug_in_flags().items() if name in declared}
    without_value = {name for name, flag in flags.items() if "bool" in str(flag.type)}
    assert set(flags) - set(where) == without_value
    return list(where.items())


def loss_with(family, name, value):
    start = max((key for key in WHERE if name.startswith(key)), key=len, default="")
    words = [*SIZES[family], *WHERE.get(start, []), f"{flag_of(name)}={value}"]
    args = parser_of(family).parse_args(words)
    task = task_of(FAMILIES[family].tasks[0], tokens_per_sample=16, init_token=0)
    args.task, args.init_token = task.cfg._name, 0
    tokens = sentences(2, 5)
    given = [tokens, None, tokens] if family == "posenc_transformer" else [tokens]
    ARCH_CONFIG_REGISTRY[family](args)
    model = FAMILIES[family].class_.build_model(args, task)
    logits = model.train()(*given)[0]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


@pytest.mark.parametrize(("name", "family"), cases())
def test_a_flag_of_a_model_is_refused_by_name_or_works(name, family):
    for value in VALUES:
        try:
            loss = loss_with(family, name, value)
        except UsageError as refused:
            assert flag_of(name) in str(refused) and "\n" not in str(refused)
        else:
            assert loss.isfinite(), value


def test_every_default_is_in_the_range_of_its_flag():
    for name, flag in plug_in_flags().items():
        default = flag.metadata["default"]
        if default is not None:
            check_option(Namespace(**{name: default}), name, flag.metadata)


@pytest.mark.parametrize("value", [0, -1, 10**30])
@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family, names in LENGTHS.items() for name in names]
)
def test_lengths_are_refused_by_name(family, name, value):
    args = Namespace(task=FAMILIES[family].tasks[0], **{name: value})
    with pytest.raises(UsageError, match=f"{flag_of(name)} {value}: must be at least 1 and"):
        ARCH_CONFIG_REGISTRY[family](args)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e30])
def test_flags_of_amos_are_refused_by_name(value):
    for name in [f.name for f in dataclasses.fields(AmosConfig) if f.name.startswith("amos_")]:
        cfg = OmegaConf.merge(AmosConfig, {"lr": [0.1], "_name": "amos", name: value})
        with pytest.raises(UsageError, match=f"{flag_of(name)} .*: must be"):
            build_optimizer(cfg, [torch.nn.Parameter(torch.ones(2, 2))])
