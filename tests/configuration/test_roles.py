"""The role of every flag, and its consequences for overrides, resuming and fine-tuning."""

import dataclasses
from argparse import Namespace

import pytest
import torch
from omegaconf import OmegaConf
from support.helpers import own_criterion, parse

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import settings_to_match
from fairseq_posenc.checkpoints.inherit import inherit
from fairseq_posenc.checkpoints.overrides import apply_overrides
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.resuming import changes, check_settings_of
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.fields import metadata_of, plug_in_flags
from fairseq_posenc.flags.settings import ROLES
from fairseq_posenc.models import FAMILIES

pytestmark = pytest.mark.properties

TASKS = {name: family.tasks[0] for name, family in FAMILIES.items()}
MASKED_LM = FAMILIES["posenc_masked_lm"]
# flags of classification heads follow other rules
HEADS = {"pooler_activation_fn", "spectral_norm_classification_head", "pooler", "pooler_norm"}
BY_TASK = {"segments"}  # tested with the tasks
HYDRA = [family for family in FAMILIES.values() if family.for_hydra]
every_family = pytest.mark.parametrize("family", HYDRA)


def flags_of(family):
    """Flags by name, without former names."""
    fields = dataclasses.fields(family.dataclass)
    return {f.name: f for f in fields if f.metadata.get("role") in ROLES}


def new_flags_of(family):
    """The flags that no family before this one in HYDRA has."""
    before = {name for other in HYDRA[: HYDRA.index(family)] for name in flags_of(other)}
    return {name: field for name, field in flags_of(family).items() if name not in before}


def other_value(field, value):
    choices = [choice for choice in field.metadata.get("choices") or () if choice != value]
    if choices:
        return choices[0]
    if field.name.endswith("position_encoding"):
        return "alibi"
    if isinstance(value, bool) or field.type in (bool, "bool"):
        return not value
    if isinstance(value, (int, float)):
        return value + (1 if field.metadata.get("below") is None else 0.5)  # a dropout is below 1
    return 3 if "int" in str(field.type) else 0.5 if "float" in str(field.type) else "other"


def configuration(family):
    """The configuration of fairseq-train, in the form that a checkpoint keeps."""
    flags = ["--langs", "de,en"] if not family.for_hydra else []
    flags += own_criterion(family)
    return parse(family.model, *flags, task=TASKS[family.model])


def checkpoint_of(cfg):
    parameters = {"encoder.sentence_encoder.embed_tokens.weight": torch.zeros(1)}
    return {"cfg": OmegaConf.to_container(cfg, enum_to_str=True), "model": parameters}


@every_family
def test_every_flag_has_a_role(family):
    flags = flags_of(family)
    assert len(flags) > 60
    for name, field in flags.items():
        role = metadata_of(name, plug_in_flags())["role"]
        assert field.metadata["role"] == role or name == "max_target_positions", name
    hidden = [f for f in dataclasses.fields(family.dataclass) if f.metadata.get("role") == "former"]
    assert {f.name for f in hidden} == {"shaw_distance", "deberta_distance"}


@every_family
def test_overrides_of_the_trained_model_are_refused(family):
    cfg = configuration(family)
    groups = {"task": {}, "model": OmegaConf.to_container(cfg.model, enum_to_str=True)}
    own, same = plug_in_flags(), {}
    for name, field in new_flags_of(family).items():
        if name.endswith("_layers_to_keep"):  # must be a list of layers, for both stacks
            continue
        state = {"cfg": OmegaConf.create(groups)}
        other = other_value(field, cfg.model.get(name))
        if field.metadata["role"] == "model":
            with pytest.raises(UsageError, match=rf"--model-overrides {name}="):
                apply_overrides(state, {name: other}, "x.pt")
            same[name] = cfg.model.get(name)
        elif name in own and not has_effect(name, {**cfg.model, name: other}, family.dataclass):
            with pytest.raises(UsageError, match=rf"--model-overrides {name}=.* has no effect"):
                apply_overrides(state, {name: other}, "x.pt")
        else:
            apply_overrides(state, {name: other}, "x.pt")
            assert state["cfg"].model[name] == other, name
    apply_overrides({"cfg": OmegaConf.create(groups)}, same, "x.pt")  # the model's own values


@every_family
def test_a_training_resumes_as_the_model_it_was(family, tmp_path):
    cfg = configuration(family)
    assert not changes(checkpoint_of(cfg), cfg)
    plain = OmegaConf.to_container(cfg.model, enum_to_str=True)
    path = tmp_path / "checkpoint_last.pt"
    torch.save(checkpoint_of(cfg), path)
    checkpoint = read_checkpoint(path)
    for name, field in new_flags_of(family).items():
        if name in {"rotary_original_length", *HEADS}:  # these follow other rules
            continue
        changed = Namespace(task=cfg.task, model=Namespace(**plain))
        setattr(changed.model, name, other_value(field, cfg.model.get(name)))
        if field.metadata["role"] == "model":
            with pytest.raises(UsageError, match="give another --save-dir"):
                check_settings_of(str(path), checkpoint, changed, resumes=True)
            # in another --save-dir, it is a warm start
            assert check_settings_of(str(path), checkpoint, changed, resumes=False), name
        else:
            check_settings_of(str(path), checkpoint, changed, resumes=True)


def test_fine_tuning_inherits_the_trained_model(tmp_path):
    cfg, own = configuration(MASKED_LM), plug_in_flags()
    path = tmp_path / "pretrained.pt"
    for name, field in flags_of(MASKED_LM).items():
        exported = field.metadata.get("exported")
        if name in HEADS | BY_TASK | {"num_positions", "max_positions"} or exported:
            continue
        state = checkpoint_of(cfg)
        other = other_value(field, cfg.model.get(name))
        state["cfg"]["model"][name] = other
        torch.save(state, path)
        args = Namespace(task="sentence_prediction", finetune_from_model=str(path), save_dir="none")
        inherit(args, MASKED_LM.dataclass, MASKED_LM.model, {})
        role = field.metadata["role"]
        inherited = role == "model" or (role == "free" and name in own)
        assert getattr(args, name, None) == (other if inherited else None), name
        given = Namespace(**{**vars(args), name: cfg.model.get(name)})
        if role == "model" and cfg.model.get(name) is not None:
            with pytest.raises(UsageError, match="was trained with"):
                inherit(given, MASKED_LM.dataclass, MASKED_LM.model, {})
        else:
            inherit(given, MASKED_LM.dataclass, MASKED_LM.model, {})


def test_fine_tuning_ignores_what_its_architecture_has_for_another_attention(tmp_path):
    arch, path = "modernbert_masked_lm_tiny", tmp_path / "pretrained.pt"
    torch.save(checkpoint_of(parse(arch, "--attention", "softmax", task="masked_lm")), path)
    args = Namespace(task="sentence_prediction", finetune_from_model=str(path), save_dir="none")
    args.attention = "softmax"
    inherit(args, MASKED_LM.dataclass, arch, MASKED_LM.presets[arch])  # has a --local-window
    assert args.local_window == "512" != MASKED_LM.presets[arch]["local_window"]


@every_family
def test_averaging_compares_all_but_settings_of_a_training_and_those_without_effect(family):
    cfg, own = configuration(family), plug_in_flags()
    plain = settings_to_match(checkpoint_of(cfg))
    task = set(cfg.task)
    for name, field in new_flags_of(family).items():
        state = checkpoint_of(cfg)
        state["cfg"]["model"][name] = other_value(field, cfg.model.get(name))
        differs = settings_to_match(state) != plain
        role, elsewhere = field.metadata["role"], name in task
        idle = role == "model" and name in own and not has_effect(name, cfg.model, family.dataclass)
        assert differs == (role != "training" and not elsewhere and not idle), name
